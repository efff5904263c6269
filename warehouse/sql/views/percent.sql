-- A share as people read it, with more digits near 0 and 100: 33%, 3.1%, 99.9%, 0.42%. As `percent` in Python.
create macro percent(share) as
case
    when share > 0 and 100 * share < 1 then printf('%.2g%%', 100 * share)
    when (100 * share < 10 or 100 * share > 90) and (100 * share) % 100 != 0 then printf('%.1f%%', 100 * share)
    else printf('%.0f%%', 100 * share)
end;
