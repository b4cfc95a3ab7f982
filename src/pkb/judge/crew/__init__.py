"""One side's processes: started, asked, watched, ended."""
