"""What this machine is, what is published about its chip, and whether it is fit to measure on."""
