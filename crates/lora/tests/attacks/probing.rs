//! A key holder that requests unit vectors learns one column from each answer. The budget is one answer
//! fewer than the number of columns, which only limits queries of this kind: see `packing`.

use confide_lora::{AnswerAllowance, AnswerBudgets, BudgetError};

use crate::parties::{Parties, WORD, slot};

const COLUMNS: usize = 16;

/// Requests every unit vector times `size` within the budget, and returns the columns that it learned.
fn probe(
    mut parties: Parties,
    allowance: AnswerAllowance,
    size: i16,
) -> (Parties, Vec<Vec<u64>>, Option<BudgetError>) {
    let mut sequence = parties.sequence();
    let mut batch = parties.batch(&mut sequence);
    let (budgets, epoch) = (AnswerBudgets::new(), parties.epoch());
    let mut learned = Vec::new();
    for column in 0..COLUMNS {
        if let Err(refused) = budgets.count_answers(slot(), COLUMNS, allowance, 1) {
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
    let (parties, learned, refused) =
        probe(Parties::new(3, COLUMNS), AnswerAllowance::BelowWidth, 1);
    assert_eq!(learned.len(), COLUMNS - 1);
    let (limit, used) = (COLUMNS as u64 - 1, COLUMNS as u64 - 1);
    assert_eq!(refused, Some(BudgetError::UsedUp { limit, used, wanted: 1 }));
    assert_eq!(learned[0].len(), parties.matrix.rows());
}

#[test]
fn control_a_budget_of_the_width_gives_the_adapter_and_says_so() {
    let allowance = AnswerAllowance::Vectors(COLUMNS as u64);
    let (parties, learned, refused) = probe(Parties::new(3, COLUMNS), allowance, 1);
    assert_eq!(refused, None);
    for row in 0..parties.matrix.rows() {
        let columns: Vec<u64> = learned.iter().map(|column| column[row] & WORD).collect();
        assert_eq!(columns, parties.row(row));
    }
    assert!(allowance.permits_extraction() && AnswerAllowance::BelowWidth.permits_extraction());
}

#[test]
fn noise_blurs_the_adapter_as_much_as_the_answers_and_no_more() {
    let (sigma, size) = (1e6, i16::MAX);
    let parties = Parties::with_noise(3, COLUMNS, sigma);
    let allowance = AnswerAllowance::Vectors(COLUMNS as u64);
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
