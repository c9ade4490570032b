-- @ABOUT@
-- from drrej_decide('predictions') has all columns of the table or view and: prediction, loss, ratio, rejected.
-- Rows without usable scores are rejected, and their loss is null. `from drrej_check` tells how many golden rows differ.
create or replace macro drrej_decide(source) as table
with step_0 as (select t.*, @COLUMN@ as @INPUT@, @OTHER@, @GROUP@ as grouped from query_table(source) t),
  @STEPS@
select * exclude (@INTERNAL@),
  case when bad then null else @NAMED@ end as prediction,
  case when bad then null else loss end as loss,
  case when bad then null else ratio end as ratio,
  not coalesce(not bad and loss < @CUTOFF@, false) as rejected
from @LAST@;

create or replace view drrej_golden as select * from (values
  @GOLDEN@
) t(@HEAD@, golden_prediction, golden_loss, golden_rejected);
create or replace view drrej_check as select count(*) as golden_rows, count(*) filter (where not (
  coalesce(prediction::text = golden_prediction, false) and rejected = golden_rejected
  and abs(loss - golden_loss) <= 1e-12 * golden_loss)) as different
from drrej_decide('drrej_golden');
