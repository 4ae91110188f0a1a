"""Old names of modules that `nearfar.numerics` has now."""
