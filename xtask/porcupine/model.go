package main

import (
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"

	"github.com/anishathalye/porcupine"
)

// Operation is one command on one key, as a client saw it. Times are microseconds.
type Operation struct {
	// What it does: get, strlen, set, incr, incrtwice, swap, create, append, add, extend, del, pexpire, hset, hget, hgetall,
	// hlen, hdel, lpush, lpop, llen, lrange.
	What  string `json:"what"`
	Field string `json:"field,omitempty"`
	Value string `json:"value,omitempty"`
	// Of set and pexpire: time to live in milliseconds.
	TTL  *int64 `json:"ttl,omitempty"`
	Call int64  `json:"call"`
	// Missing where the client never learnt the outcome: it may take effect at any later time, or never.
	Return *int64 `json:"return,omitempty"`
	Reply  string `json:"reply"`
	// The index of an earlier command of the same pipeline on this key.
	After *int `json:"after,omitempty"`

	index int
	// Whether another command names this one in After.
	leads bool
}

func (o *Operation) latest() int64 {
	if o.Return == nil {
		return math.MaxInt64
	}
	return *o.Return
}

// A key that may be a text, a hash, a list or absent, and when it expires: at some time within a window.
type object struct {
	text    string
	fields  string
	present bool
	expires bool
	first   int64
	last    int64
}

// What is known after some operations: every object that explains them, the latest call among them, and the
// commands of pipelines whose successors are still to come.
type state struct {
	now     int64
	objects []object
	leaders string
}

func timed(operations []Operation) []porcupine.Operation {
	for i := range operations {
		operations[i].index = i
		if after := operations[i].After; after != nil {
			operations[*after].leads = true
		}
	}
	timed := make([]porcupine.Operation, len(operations))
	for i := range operations {
		operation := &operations[i]
		// Every operation is a client of its own: those of one pipeline overlap.
		timed[i] = porcupine.Operation{
			ClientId: i, Input: operation, Call: operation.Call, Output: operation.Reply, Return: operation.latest(),
		}
	}
	return timed
}

func model() porcupine.Model {
	return porcupine.Model{
		Init: func() interface{} { return state{objects: []object{{}}} },
		Step: func(before, input, _ interface{}) (bool, interface{}) {
			return step(before.(state), input.(*Operation))
		},
		Equal: func(a, b interface{}) bool { return equal(a.(state), b.(state)) },
		DescribeOperation: func(input, _ interface{}) string {
			operation := input.(*Operation)
			text := strings.TrimSpace(operation.What + " " + operation.Field + " " + operation.Value)
			if operation.TTL != nil {
				text += fmt.Sprintf(" for %d ms", *operation.TTL)
			}
			if operation.Return == nil {
				return text + " -> unknown"
			}
			return text + " -> " + operation.Reply
		},
		DescribeState: func(s interface{}) string { return fmt.Sprintf("%+v", s.(state).objects) },
	}
}

// Porcupine asks this of states after the same operations; the rest of a state follows from those.
func equal(a, b state) bool {
	if len(a.objects) != len(b.objects) {
		return false
	}
	for i := range a.objects {
		if a.objects[i] != b.objects[i] {
			return false
		}
	}
	return true
}

func step(before state, operation *Operation) (bool, state) {
	after := state{now: before.now, leaders: before.leaders}
	if operation.Call > after.now {
		after.now = operation.Call
	}
	if operation.After != nil {
		leader := mark(*operation.After)
		if !strings.Contains(after.leaders, leader) {
			return false, before
		}
		after.leaders = strings.Replace(after.leaders, leader, "", 1)
	}
	if operation.leads {
		after.leaders += mark(operation.index)
	}
	window := [2]int64{after.now, operation.latest()}
	for _, candidate := range before.objects {
		for _, outcome := range outcomes(candidate, operation, window) {
			if operation.Return == nil || outcome.reply == operation.Reply {
				after.objects = insert(after.objects, outcome.object)
			}
		}
	}
	return len(after.objects) > 0, after
}

func mark(index int) string { return "<" + strconv.Itoa(index) + ">" }

func insert(objects []object, one object) []object {
	for _, other := range objects {
		if other == one {
			return objects
		}
	}
	return append(objects, one)
}

type outcome struct {
	object object
	reply  string
}

// Both where the key may or may not have expired.
func outcomes(candidate object, operation *Operation, window [2]int64) []outcome {
	var found []outcome
	if !candidate.expires || window[0] <= candidate.last {
		found = append(found, apply(candidate, operation, window))
	}
	if candidate.expires && window[1] >= candidate.first {
		found = append(found, apply(object{}, operation, window))
	}
	return found
}

// Storage's clock may be wrong by 1 %, and it counts whole milliseconds.
func expiring(o object, ttl int64, window [2]int64) object {
	o.expires = true
	o.first = window[0] + ttl*990 - 2000
	o.last = math.MaxInt64
	if window[1] < math.MaxInt64/2 {
		o.last = window[1] + ttl*1010 + 2000
	}
	return o
}

func apply(o object, operation *Operation, window [2]int64) outcome {
	switch operation.What {
	case "get":
		if !o.present {
			return outcome{o, "nil"}
		}
		return outcome{o, "$" + o.text}
	case "strlen":
		return outcome{o, number(len(o.text))}
	case "set":
		written := object{present: true, text: operation.Value}
		if operation.TTL != nil {
			written = expiring(written, *operation.TTL, window)
		}
		return outcome{written, "+OK"}
	case "incr":
		count, _ := strconv.Atoi(o.text)
		o.present, o.text = true, strconv.Itoa(count+1)
		return outcome{o, ":" + o.text}
	case "incrtwice":
		count, _ := strconv.Atoi(o.text)
		o.present, o.text = true, strconv.Itoa(count+2)
		return outcome{o, ":" + o.text}
	case "swap":
		if !o.present || o.text != operation.Field {
			return outcome{o, ":0"}
		}
		return outcome{object{present: true, text: operation.Value}, ":1"}
	case "create":
		if o.present {
			return outcome{o, ":0"}
		}
		return outcome{object{present: true, text: operation.Value}, ":1"}
	case "append":
		o.present, o.text = true, o.text+operation.Value
		return outcome{o, number(len(o.text))}
	case "add":
		if o.present {
			return outcome{o, "+no"}
		}
		return outcome{object{present: true, text: operation.Value}, "+OK"}
	case "extend":
		if !o.present {
			return outcome{o, "+no"}
		}
		o.text += operation.Value
		return outcome{o, "+OK"}
	case "del":
		if !o.present {
			return outcome{object{}, ":0"}
		}
		return outcome{object{}, ":1"}
	case "pexpire":
		if !o.present {
			return outcome{o, ":0"}
		}
		return outcome{expiring(o, *operation.TTL, window), ":1"}
	}
	if strings.HasPrefix(operation.What, "l") {
		return applyToList(o, operation)
	}
	return applyToHash(o, operation)
}

// Values are kept as one text, parted by commas, the newest first.
func applyToList(o object, operation *Operation) outcome {
	var values []string
	if o.fields != "" {
		values = strings.Split(o.fields, ",")
	}
	switch operation.What {
	case "lpush":
		values = append([]string{operation.Value}, values...)
		o.present, o.fields = true, strings.Join(values, ",")
		return outcome{o, number(len(values))}
	case "lpop":
		if len(values) == 0 {
			return outcome{o, "nil"}
		}
		o.present, o.fields = len(values) > 1, strings.Join(values[1:], ",")
		return outcome{o, "$" + values[0]}
	case "llen":
		return outcome{o, number(len(values))}
	case "lrange":
		return outcome{o, "[" + o.fields + "]"}
	}
	panic("unknown operation " + operation.What)
}

// Fields are kept as one text, "field=value" sorted and parted by commas.
func applyToHash(o object, operation *Operation) outcome {
	var fields []string
	if o.fields != "" {
		fields = strings.Split(o.fields, ",")
	}
	place, prefix := -1, operation.Field+"="
	for i, field := range fields {
		if strings.HasPrefix(field, prefix) {
			place = i
		}
	}
	switch operation.What {
	case "hset":
		reply := ":0"
		if place < 0 {
			place, reply = len(fields), ":1"
			fields = append(fields, "")
		}
		fields[place] = prefix + operation.Value
		sort.Strings(fields)
		o.present, o.fields = true, strings.Join(fields, ",")
		return outcome{o, reply}
	case "hdel":
		if place < 0 {
			return outcome{o, ":0"}
		}
		fields = append(fields[:place:place], fields[place+1:]...)
		o.present, o.fields = len(fields) > 0, strings.Join(fields, ",")
		return outcome{o, ":1"}
	case "hget":
		if place < 0 {
			return outcome{o, "nil"}
		}
		return outcome{o, "$" + fields[place][len(prefix):]}
	case "hgetall":
		return outcome{o, "{" + o.fields + "}"}
	case "hlen":
		return outcome{o, number(len(fields))}
	}
	panic("unknown operation " + operation.What)
}

func number(n int) string { return ":" + strconv.Itoa(n) }
