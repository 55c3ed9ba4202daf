"""What each `groupwise` command does. `cli.py` names them; each module is imported only when it is called."""
