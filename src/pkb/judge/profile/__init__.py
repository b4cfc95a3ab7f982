"""What ran on the device during a call."""
