"""What makes code written for a GPU run on a CPU: device names and Triton's interpreter."""
