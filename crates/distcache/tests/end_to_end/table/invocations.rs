//! From a command's argument tree to invocations that use every branch, option and kind of mistake. Not their replies.

use std::collections::HashSet;

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use super::seeds;
use super::tree::{Argument, Documented, Kind};

/// Enough for every option of the largest command beside some drawn combinations.
const INVOCATIONS_MAX: usize = 260;
const DRAWN: usize = 60;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Word {
    Text(Vec<u8>),
    Key(&'static str),
    /// How many keys follow.
    KeyCount,
}

/// One way to write an argument.
type Form = Vec<Word>;

/// The invocations of a command, each as its arguments, the same ones at each call.
pub(crate) fn of(command: &Documented, payload: &[u8]) -> Vec<Vec<Vec<u8>>> {
    let maker = Maker { command, payload };
    let mut forms = maker.row(&command.arguments);
    let mut random = SmallRng::seed_from_u64(command.name.bytes().map(u64::from).sum());
    forms.truncate(INVOCATIONS_MAX - DRAWN);
    let choices: Vec<Vec<Form>> = command.arguments.iter().map(|argument| maker.choices(argument)).collect();
    for _ in 0..DRAWN {
        let drawn = choices.iter().filter_map(|forms| forms.choose(&mut random));
        forms.push(drawn.flatten().cloned().collect());
    }
    let name = words(&command.name);
    let mut all: Vec<Vec<Vec<u8>>> =
        forms.iter().map(|form| [name.clone(), plain(form, seeds::TAG)].concat()).collect();
    let whole = all[0].clone();
    // Too few, too many.
    all.push(name.clone());
    all.push([name, vec![b"x".to_vec()]].concat());
    all.push(whole[..whole.len() - usize::from(whole.len() > 1)].to_vec());
    all.push([whole.clone(), vec![b"x".to_vec()]].concat());
    all.push([whole, vec![b"x".to_vec(), b"y".to_vec(), b"1".to_vec()]].concat());
    let mut seen = HashSet::new();
    all.retain(|invocation| seen.insert(invocation.clone()));
    all
}

/// Draws invocations of one command.
pub(crate) struct Drawer {
    name: Vec<Vec<u8>>,
    choices: Vec<Vec<Form>>,
}

impl Drawer {
    pub(crate) fn new(command: &Documented, payload: &[u8]) -> Drawer {
        let maker = Maker { command, payload };
        let choices = command.arguments.iter().map(|argument| maker.choices(argument)).collect();
        Drawer { name: words(&command.name), choices }
    }

    /// One whose keys have this hash tag: mostly sound, now and then with the wrong number of arguments.
    pub(crate) fn draw(&self, random: &mut SmallRng, tag: &str) -> Vec<Vec<u8>> {
        let mut form = Form::new();
        for choices in &self.choices {
            let sound = &choices[..choices.len().min(2)];
            let own = if random.random_bool(0.5) { sound } else { choices };
            form.extend(own.choose(random).into_iter().flatten().cloned());
        }
        let mut words = self.name.clone();
        words.extend(plain(&form, tag));
        match random.random_range(0..60) {
            0 => words.truncate(words.len() - usize::from(words.len() > 1)),
            // Once more the last one, so that keys keep their tag.
            1 if matches!(form.last(), Some(Word::Key(_))) => words.extend(words.last().cloned()),
            _ => {}
        }
        words
    }
}

fn words(name: &str) -> Vec<Vec<u8>> {
    name.split('|').map(|part| part.to_uppercase().into_bytes()).collect()
}

fn plain(form: &Form, tag: &str) -> Vec<Vec<u8>> {
    let count = |from: usize| form[from..].iter().take_while(|word| matches!(word, Word::Key(_))).count();
    let words = form.iter().enumerate().map(|(at, word)| match word {
        Word::Text(text) => text.clone(),
        Word::Key(key) => key.replace(seeds::TAG, tag).into_bytes(),
        Word::KeyCount => count(at + 1).to_string().into_bytes(),
    });
    words.collect()
}

struct Maker<'a> {
    command: &'a Documented,
    payload: &'a [u8],
}

impl Maker<'_> {
    /// Forms of arguments in a row: none of the optional ones, all of them, and from both each choice in turn.
    fn row(&self, arguments: &[Argument]) -> Vec<Form> {
        let choices: Vec<Vec<Form>> = arguments.iter().map(|argument| self.choices(argument)).collect();
        let least: Vec<usize> = vec![0; choices.len()];
        let most: Vec<usize> = arguments.iter().map(|argument| usize::from(argument.optional)).collect();
        let whole = |picked: &[usize]| -> Form {
            choices.iter().zip(picked).flat_map(|(forms, pick)| forms[*pick].clone()).collect()
        };
        let mut forms = vec![whole(&least), whole(&most)];
        for base in [&least, &most] {
            for (place, own) in choices.iter().enumerate() {
                for pick in 0..own.len() {
                    let mut picked = base.clone();
                    picked[place] = pick;
                    forms.push(whole(&picked));
                }
            }
        }
        let mut seen = HashSet::new();
        forms.retain(|form| seen.insert(form.clone()));
        forms
    }

    /// Everything that may stand for an argument; of an optional one the first is nothing.
    fn choices(&self, argument: &Argument) -> Vec<Form> {
        let absent = argument.optional.then(Form::new);
        absent.into_iter().chain(self.present(argument)).collect()
    }

    fn present(&self, argument: &Argument) -> Vec<Form> {
        let token = argument.token.as_ref().map(|token| Word::Text(token.clone().into_bytes()));
        let single: Vec<Form> = match &argument.kind {
            Kind::OneOf(branches) => branches.iter().flat_map(|branch| self.present(branch)).collect(),
            Kind::Block(row) => self.row(row),
            Kind::Leaf(kind) if kind == "pure-token" => vec![Form::new()],
            Kind::Leaf(kind) => self.leaf(kind, argument),
        };
        let led = |forms: &[Form]| -> Form {
            let lead = token.clone();
            lead.into_iter().chain(forms.iter().flatten().cloned()).collect()
        };
        let mut forms: Vec<Form> = single.iter().map(|form| led(std::slice::from_ref(form))).collect();
        if argument.multiple {
            let last = single.last().expect("a form").clone();
            for second in [single.get(1).unwrap_or(&single[0]).clone(), last] {
                let two = [single[0].clone(), second];
                forms.push(match argument.multiple_token {
                    true => two.iter().flat_map(|form| led(std::slice::from_ref(form))).collect(),
                    false => led(&two),
                });
            }
        }
        forms
    }

    fn leaf(&self, kind: &str, argument: &Argument) -> Vec<Form> {
        if kind == "key" {
            let keys = seeds::keys(&self.command.name, &self.command.group, &argument.name);
            return keys.into_iter().map(|key| vec![Word::Key(key)]).collect();
        }
        if argument.name == "numkeys" {
            let wrong = ["0", "-1", "x", "99"].map(|text| vec![Word::Text(text.into())]);
            return std::iter::once(vec![Word::KeyCount]).chain(wrong).collect();
        }
        if argument.name == "serialized-value" {
            return vec![vec![Word::Text(self.payload.to_vec())], vec![Word::Text(b"broken".to_vec())]];
        }
        let values = seeds::values(&self.command.name, kind, &argument.name);
        values.iter().map(|value| vec![Word::Text(value.as_bytes().to_vec())]).collect()
    }
}
