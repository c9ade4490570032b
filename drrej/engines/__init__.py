"""How passes over a dump are run: by threads of this process, or on a cluster."""
