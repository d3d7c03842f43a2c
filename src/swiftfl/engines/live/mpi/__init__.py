"""Real clients on a cluster: one MPI rank each."""
