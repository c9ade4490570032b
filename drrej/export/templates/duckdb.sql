-- @ABOUT@
-- from drrej_decide('predictions') has prediction, loss, ratio, rejected, and all columns of the table or view: one that
-- has the same name is called loss_1 there.
-- Rows without usable scores are rejected, and their loss is null. `from drrej_check` tells how many golden rows differ.
create or replace macro drrej_decide(source) as table
with step_0 as (select t.*, @COLUMN@ as drrej_@INPUT@, @GROUP@ as drrej_grouped from query_table(source) t),
  @STEPS@
select case when drrej_bad then null else @NAMED@ end as prediction,
  case when drrej_bad then null else drrej_loss end as loss,
  case when drrej_bad then null else drrej_ratio end as ratio,
  not coalesce(not drrej_bad and drrej_loss < @CUTOFF@, false) as rejected,
  * exclude (@INTERNAL@)
from @LAST@;

create or replace view drrej_golden as select * from (values
  @GOLDEN@
) t(@HEAD@, golden_prediction, golden_loss, golden_rejected);
create or replace view drrej_check as select count(*) as golden_rows, count(*) filter (where not (
  coalesce(prediction::text = golden_prediction, false) and rejected = golden_rejected
  and abs(loss - golden_loss) <= 1e-12 * golden_loss)) as different
from drrej_decide('drrej_golden');
