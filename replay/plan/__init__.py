"""What is loaded, who plays whom, and the proof that it ends; pure, no MPI."""
