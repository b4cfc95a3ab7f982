"""What Python does to memory that others see, told to the recorder of memory accesses while it records."""
