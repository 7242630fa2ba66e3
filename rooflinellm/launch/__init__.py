"""Launch commands both ways: what a server's command line asks for, and the command that checks an estimate."""
