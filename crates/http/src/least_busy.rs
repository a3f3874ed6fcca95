//! The choice among the servers of one service: the least busy one, and turns among equals.

use std::cmp::Ordering;

/// A server that may take the next request.
#[derive(Clone, Copy, Debug)]
pub struct ServerLoad {
    /// The position of the server in its list.
    pub index: usize,
    /// The number of its running requests.
    pub running: u32,
    /// Its share of the requests relative to the others, at least 1.
    pub weight: u32,
}

impl ServerLoad {
    /// Compares the numbers of running requests, each divided by its server's weight.
    fn compare(&self, other: &Self) -> Ordering {
        let product = |running: u32, weight: u32| u64::from(running) * u64::from(weight);
        product(self.running, other.weight).cmp(&product(other.running, self.weight))
    }
}

/// Chooses the server with the fewest running requests relative to its weight.
///
/// Answers of a model take from milliseconds to minutes, so that equal shares of requests are not
/// equal shares of work; the number of running requests shows how busy a server is. Smooth weighted
/// round robin decides between equals, so that the weights hold for a single client, too.
#[derive(Debug, Default)]
pub struct LeastBusyChoice {
    /// The credit of each server in the weighted round robin.
    credits: Vec<i64>,
}

impl LeastBusyChoice {
    /// The index of the server that takes the next request; `None` without a server.
    pub fn choose(&mut self, servers: impl Iterator<Item = ServerLoad> + Clone) -> Option<usize> {
        let least = servers.clone().min_by(ServerLoad::compare)?;
        let equals = servers.filter(|server| server.compare(&least).is_eq());
        let (mut chosen, mut total) = (least.index, 0);
        for ServerLoad { index, weight, .. } in equals {
            if self.credits.len() <= index.max(chosen) {
                self.credits.resize(index.max(chosen) + 1, 0);
            }
            let weight = i64::from(weight);
            self.credits[index] += weight;
            total += weight;
            if self.credits[index] > self.credits[chosen] {
                chosen = index;
            }
        }
        self.credits[chosen] -= total;
        Some(chosen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(choice: &mut LeastBusyChoice, loads: &[(u32, u32)]) -> Option<usize> {
        let load = |(index, &(running, weight)): (usize, &(u32, u32))| ServerLoad {
            index,
            running,
            weight,
        };
        choice.choose(loads.iter().enumerate().map(load))
    }

    #[test]
    fn the_least_busy_server_relative_to_its_weight_is_chosen() {
        let mut choice = LeastBusyChoice::default();
        assert_eq!(choose(&mut choice, &[]), None);
        assert_eq!(choose(&mut choice, &[(3, 1), (2, 1), (4, 1)]), Some(1));
        assert_eq!(choose(&mut choice, &[(3, 1), (2, 1), (7, 4)]), Some(2));
    }

    #[test]
    fn equals_take_turns_by_weight() {
        let mut choice = LeastBusyChoice::default();
        let mut counts = [0; 3];
        for _ in 0..12 {
            counts[choose(&mut choice, &[(0, 1), (0, 2), (0, 1)]).unwrap()] += 1;
        }
        assert_eq!(counts, [3, 6, 3]);
    }
}
