"""The commands, a module each: its name is the command's, its attribute `command` the click command.

All of them are imported for ``rooflinellm --help``, so at the top of a module stand click and `rooflinellm.cli` only;
everything else is imported inside the functions.
"""
