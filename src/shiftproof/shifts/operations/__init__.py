"""Operations at a level in their own units: geometry, colour and tone."""
