"""What the commands of `fastrace` do; `cli` reads their arguments."""
