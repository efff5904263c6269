-- Bounds of a share: how small or large it may be of which `num` of `n` were seen, `z` standard errors away (Wilson,
-- J. Am. Stat. Assoc. 22, 1927). They hold for few cases and for none; null if n is 0.
create macro wilson_low(num, n, z) as
(num + z * z / 2 - z * sqrt(num * (n - num) / nullif(n, 0) + z * z / 4)) / (n + z * z);
create macro wilson_high(num, n, z) as
(num + z * z / 2 + z * sqrt(num * (n - num) / nullif(n, 0) + z * z / 4)) / (n + z * z);
