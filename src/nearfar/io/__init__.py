"""Files: arrays and a little text in one file, which is whole or not there."""
