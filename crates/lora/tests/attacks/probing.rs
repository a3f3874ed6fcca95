//! A key holder that asks for unit vectors reads one column with each answer. The budget holds one
//! answer fewer than there are columns, which bounds these queries and no others: see `packing`.

use confide_lora::{Allowance, AnswerBudgets, BudgetError};

use crate::parties::{Parties, WORD, slot};

const COLUMNS: usize = 16;

/// Asks for every unit vector times `size` within the budget, and returns the columns that were
/// learned.
fn probe(
    mut parties: Parties,
    allowance: Allowance,
    size: i16,
) -> (Parties, Vec<Vec<u64>>, Option<BudgetError>) {
    let mut sequence = parties.sequence();
    let mut batch = parties.batch(&mut sequence);
    let (budgets, epoch) = (AnswerBudgets::new(), parties.epoch());
    let mut learned = Vec::new();
    for column in 0..COLUMNS {
        if let Err(refused) = budgets.take(slot(), COLUMNS, allowance, 1) {
            return (parties, learned, Some(refused));
        }
        let mut unit = [0i16; COLUMNS];
        unit[column] = size;
        let masked = batch.mask(&unit, &mut parties.meter).expect("left");
        let answer =
            parties.apply(&mut sequence, epoch, masked.counter, &masked.vectors).expect("fresh");
        learned.push(batch.unmask(masked.counter, &answer, &mut parties.meter).expect("asked"));
    }
    (parties, learned, None)
}

#[test]
fn the_budget_trips_before_the_last_column() {
    let (parties, learned, refused) = probe(Parties::new(3, COLUMNS), Allowance::BelowWidth, 1);
    assert_eq!(learned.len(), COLUMNS - 1);
    let (limit, used) = (COLUMNS as u64 - 1, COLUMNS as u64 - 1);
    assert_eq!(refused, Some(BudgetError::UsedUp { limit, used, wanted: 1 }));
    assert_eq!(learned[0].len(), parties.matrix.rows());
}

#[test]
fn control_a_budget_of_the_width_gives_the_adapter_and_says_so() {
    let allowance = Allowance::Vectors(COLUMNS as u64);
    let (parties, learned, refused) = probe(Parties::new(3, COLUMNS), allowance, 1);
    assert_eq!(refused, None);
    for row in 0..parties.matrix.rows() {
        let columns: Vec<u64> = learned.iter().map(|column| column[row] & WORD).collect();
        assert_eq!(columns, parties.row(row));
    }
    assert!(allowance.lets_learn() && Allowance::BelowWidth.lets_learn());
}

#[test]
fn noise_blurs_the_adapter_as_much_as_the_answers_and_no_more() {
    let (sigma, size) = (1e6, i16::MAX);
    let parties = Parties::noisy(3, COLUMNS, sigma);
    let allowance = Allowance::Vectors(COLUMNS as u64);
    let (parties, learned, _) = probe(parties, allowance, size);
    let mut square = 0.0;
    for row in 0..3 {
        for (learned, entry) in learned.iter().zip(parties.matrix.row(row)) {
            // The word mod 2^33 as a signed integer.
            let answer = ((learned[row] << 31) as i64 >> 31) as f64;
            square += (answer / f64::from(size) - f64::from(entry)).powi(2);
        }
    }
    let error = (square / (3 * COLUMNS) as f64).sqrt();
    let wanted = sigma / f64::from(size);
    assert!((0.7..1.3).contains(&(error / wanted)), "{error} of {wanted}");
}
