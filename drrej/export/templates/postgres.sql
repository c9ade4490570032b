-- @ABOUT@
-- select t.*, d.* from predictions t cross join lateral drrej_decide(@CALL@) d;
-- has all columns of the table and: prediction, loss, ratio, rejected. Rows without usable scores are rejected, and
-- their loss is null. `select * from drrej_check` tells how many golden rows differ.
drop view if exists drrej_check;
drop function if exists drrej_decide(float8, text);
drop function if exists drrej_decide(float8[], text);
create function drrej_decide(@INPUT@ @KIND@, grouped text default null)
returns table (prediction @PREDICTED@, loss float8, ratio float8, rejected boolean) language sql immutable as $drrej$
with step_0 as (select drrej_decide.@INPUT@ as drrej_@INPUT@, drrej_decide.grouped as drrej_grouped),
  @STEPS@
select case when drrej_bad then null else @NAMED@ end,
  case when drrej_bad then null else drrej_loss end,
  case when drrej_bad then null else drrej_ratio end,
  not coalesce(not drrej_bad and drrej_loss < @CUTOFF@, false)
from @LAST@
$drrej$;

create view drrej_check as select count(*) as golden_rows, count(*) filter (where not (
  coalesce(d.prediction::text = golden_prediction, false) and d.rejected = golden_rejected
  and abs(d.loss - golden_loss) <= 1e-12 * golden_loss)) as different
from (values
  @GOLDEN@
) t(@HEAD@, golden_prediction, golden_loss, golden_rejected) cross join lateral drrej_decide(@CALL@) d;
