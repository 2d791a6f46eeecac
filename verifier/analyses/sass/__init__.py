"""What machine code shows: loops, scoreboards, and which PTX each instruction realizes."""
