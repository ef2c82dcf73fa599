"""Reports: figures for papers and the self-contained page of the walk."""
