"""Names and calls of other libraries on the methods of this one."""
