"""Files that start a run on a cluster: Slurm, Kubernetes, SkyPilot."""
