"""Reading and writing of files: atomic writes, locks, arrays in safetensors files, and files from strangers."""
