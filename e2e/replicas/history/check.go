package history

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// Violation is a history that violates the rules.
type Violation struct {
	Subject    string
	What       string // kind of violation, such as UsedTwice
	Operations []Operation
}

func (v Violation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", v.Subject, v.What)
	for _, o := range v.Operations {
		fmt.Fprintf(&b, "  %9.3f – %9.3f s  client %2d  %-9s %s → %s %s %s\n",
			o.Call.Seconds(), o.Return.Seconds(), o.Client, o.Kind, o.Token, o.Result, o.Next, o.ResponseText)
	}
	return b.String()
}

// Kinds of violations.
const (
	UsedTwice  = "used twice"                        // tokens were issued twice for a code or refresh token
	StillGood  = "accepted after its end"            // a gateway accepted a token after the lag
	NoMoreGood = "refused though nothing had ended"  // the grant was lost, or revoked by an unrelated failure
	Undecided  = "too many orders to check them all" // not decided within the time limit for a history
	Otherwise  = "not to be explained"
)

// patience is the time limit for checking a history.
const patience = 20 * time.Second

// Check returns a violation for each history that violates the rules.
func Check(operations []Operation, rules Rules) (violations []Violation) {
	for subject, part := range bySubject(operations) {
		if what := rules.judge(part); what != "" {
			violations = append(violations, Violation{subject, what, part})
		}
	}
	slices.SortFunc(violations, func(a, b Violation) int { return cmp.Compare(a.Subject, b.Subject) })
	return violations
}

// Subjects returns the number of histories, one for each grant or session.
func Subjects(operations []Operation) int { return len(bySubject(operations)) }

func bySubject(operations []Operation) map[string][]Operation {
	parts := map[string][]Operation{}
	for _, o := range operations {
		parts[o.Subject] = append(parts[o.Subject], o)
	}
	for _, part := range parts {
		slices.SortFunc(part, func(a, b Operation) int { return cmp.Compare(a.Call, b.Call) })
	}
	return parts
}

// judge returns the kind of violation of a history, or "" if the history is valid.
func (r Rules) judge(part []Operation) string {
	switch r.permit(part) {
	case porcupine.Ok:
		return ""
	case porcupine.Unknown:
		return Undecided
	}
	for _, exception := range []struct {
		what string
		pass func(*Rules)
	}{
		{UsedTwice, func(r *Rules) { r.passTwice = true }},
		{StillGood, func(r *Rules) { r.passAccepted = true }},
		{NoMoreGood, func(r *Rules) { r.passRefused = true }},
	} {
		lenient := r
		if exception.pass(&lenient); lenient.permit(part) == porcupine.Ok {
			return exception.what
		}
	}
	return Otherwise
}

func (r Rules) permit(part []Operation) porcupine.CheckResult {
	history := make([]porcupine.Operation, 0, len(part))
	for _, o := range part {
		if o.Result == Unknown && o.Kind == Access {
			continue // no effect on the state
		}
		end := o.Return
		if o.Result == Unknown {
			end = never
		}
		history = append(history, porcupine.Operation{ClientId: o.Client, Input: o, Call: int64(o.Call), Return: int64(end)})
	}
	model := r.model()
	if part[0].Kind == SignIn || part[0].Kind == Authorize {
		model = r.sessions()
	}
	return porcupine.CheckOperationsTimeout(model, history, patience)
}

func (r Rules) model() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{grant{}} },
		Step: func(state, input, _ any) (next []any) {
			for _, g := range r.step(state.(grant), input.(Operation)) {
				next = append(next, g)
			}
			return next
		},
	}
	return m.ToModel()
}

func (r Rules) sessions() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{session{}} },
		Step: func(state, input, _ any) (next []any) {
			for _, s := range r.visit(state.(session), input.(Operation)) {
				next = append(next, s)
			}
			return next
		},
	}
	return m.ToModel()
}
