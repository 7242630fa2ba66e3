"""The public functions, a file each."""
