"""What differs between chips: rates and sizes, limits of a launch, what becomes of matrix instructions."""
