"""Files and folders into datasets: options, reading, synchronising, and doing so on several machines."""
