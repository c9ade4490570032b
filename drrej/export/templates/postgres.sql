-- @ABOUT@
-- select p.*, d.* from predictions p cross join lateral drrej_decide(@COLUMN@) d
-- Rows without usable scores are rejected, and their loss is null. `select * from drrej_check` tells how many golden rows
-- differ.
create or replace function drrej_decide(@INPUT@ @LIST@, grouped text default null)
returns table (prediction @PREDICTION@, loss float8, ratio float8, rejected boolean)
language sql immutable parallel safe as $decision$
with input as (select drrej_decide.@INPUT@ as @INPUT@, @OTHER@, drrej_decide.grouped as grouped),
  @STEPS@
select
  case when bad then null else @NAMED@ end,
  case when bad then null else loss end,
  case when bad then null else ratio end,
  not coalesce(not bad and loss < @CUTOFF@, false)
from @LAST@
$decision$;

create or replace view drrej_golden as select * from (values
  @GOLDEN@
) t(@HEAD@);
create or replace view drrej_check as select count(*) as golden_rows, count(*) filter (where not (
  coalesce(prediction::text = golden_prediction, false) and rejected = golden_rejected
  and abs(loss - golden_loss) <= 1e-12 * golden_loss)) as different
from drrej_golden g cross join lateral drrej_decide(g.scores, g.golden_group) d;
