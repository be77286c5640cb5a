"""This process and its children: memory, cores, imports, threads, connections."""
