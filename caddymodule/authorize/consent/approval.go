package consent

import (
	"slices"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
)

// Approval is what a person answered to a client about one patient, as stored. Its items are
// scopes as the client asks for them, and claims requested by name as claim:<name>.
type Approval struct {
	Patient  string              `json:"patient,omitempty"`  // the id; "" if it was about none
	Seen     []string            `json:"seen"`               // items that the person was asked for
	Granted  []string            `json:"granted"`            // those of them that they allowed
	Narrowed map[string][]string `json:"narrowed,omitempty"` // the narrower scopes that they allowed instead of others
	Until    time.Time           `json:"until,omitzero"`     // when offline_access ends; zero if they did not say
	At       time.Time           `json:"at"`                 // when they were last asked
	Declined bool                `json:"declined,omitempty"` // they refused since, and have to be asked

	// Unclear is of a release that did not store the patient. It counts where only one can be
	// meant.
	Unclear bool `json:"unclear,omitempty"`
}

// About is what a request is about.
type About struct {
	Patient string // the id, or "" for none
	Own     bool   // the person has no other patient to choose
}

const (
	// lifetime is how long a person is not asked again.
	lifetime = 365 * 24 * time.Hour

	// maxItems bounds the items of a client that asks for another search scope each time.
	// Beyond it, only the latest answer about a patient is remembered.
	maxItems = 100

	// maxPatients and maxAllItems bound what is remembered of all patients. Beyond them, the
	// earliest answers are forgotten.
	maxPatients = 100
	maxAllItems = 1000
)

// isAbout reports whether an approval counts for a request.
func (a *Approval) isAbout(about About) bool {
	if a.Unclear {
		return about.Patient == "" || about.Own
	}
	return a.Patient == about.Patient
}

// Ends is when the approval is forgotten.
func (a *Approval) Ends() time.Time { return a.At.Add(lifetime) }

// Answer returns what a person answered earlier; false if they were not asked for some of the
// items. Those count as given if others is set, and they are no part of what was refused.
func (a *Approval) Answer(items []string, others bool) (answer Answer, all bool) {
	answer.Until = a.Until
	for _, item := range items {
		switch {
		case slices.Contains(a.Seen, item):
			answer.Given = append(answer.Given, Given{item, a.of(item)})
		case others && !a.refused(item):
			answer.Given = append(answer.Given, Given{item, []string{item}})
		default:
			return Answer{}, false
		}
	}
	return answer, true
}

// of returns what a person gave of an item.
func (a *Approval) of(item string) []string {
	if slices.Contains(a.Granted, item) {
		return []string{item}
	}
	return a.Narrowed[item]
}

// Given is all that a person allows, in the order of their answers.
func (a *Approval) Given() (scopes []string) {
	for _, item := range a.Seen {
		scopes = append(scopes, a.of(item)...)
	}
	return scopes
}

// Covers reports whether a person allows all of a scope.
func (a *Approval) Covers(scope []string) bool { return covers(a.Given(), scope) }

// Permits reports whether a person refused nothing of the scope of a grant, of which they may
// not have been asked for all the items.
func (a *Approval) Permits(items, scope []string) bool {
	var asked, given []string
	for _, item := range items {
		if slices.Contains(a.Seen, item) {
			asked, given = append(asked, item), append(given, a.of(item)...)
		} else {
			given = append(given, item)
		}
	}
	return !slices.ContainsFunc(scope, func(s string) bool {
		return covers(asked, []string{s}) && !covers(given, []string{s})
	})
}

// refused reports whether a person was asked for an item as a part of another, and did not give
// all of it.
func (a *Approval) refused(item string) bool {
	return covers(a.Seen, []string{item}) && !covers(a.Given(), []string{item})
}

// Ticked returns the names of the choices that a person made of an item; false if they were
// not asked.
func (a *Approval) Ticked(choice *Choice) (names map[string]bool, asked bool) {
	if a == nil || !slices.Contains(a.Seen, choice.Name) {
		return nil, false
	}
	return choice.Ticked(a.of(choice.Name)), true
}

// add replaces earlier answers to the same items, or all if there were too many.
func (a *Approval) add(answer Answer) {
	a.Seen = slices.DeleteFunc(a.Seen, answer.asks)
	if len(a.Seen)+len(answer.Given) > maxItems {
		*a = Approval{Patient: a.Patient}
	}
	a.Granted, a.Declined = slices.DeleteFunc(a.Granted, answer.asks), false
	for _, g := range answer.Given {
		a.Seen = append(a.Seen, g.Item)
		delete(a.Narrowed, g.Item)
		switch {
		case g.IsWhole():
			a.Granted = append(a.Granted, g.Item)
		case len(g.Scopes) > 0:
			a.narrow(g)
		}
	}
	if answer.asks(client.OfflineAccess) {
		a.Until = answer.Until
	}
}

func (a *Approval) narrow(g Given) {
	if a.Narrowed == nil {
		a.Narrowed = map[string][]string{}
	}
	a.Narrowed[g.Item] = g.Scopes
}

// lapse forgets offline_access when it has ended, so that the person is asked again.
func (a *Approval) lapse(now time.Time) {
	if a.Until.IsZero() || now.Before(a.Until) {
		return
	}
	isOffline := func(item string) bool { return item == client.OfflineAccess }
	a.Seen, a.Granted = slices.DeleteFunc(a.Seen, isOffline), slices.DeleteFunc(a.Granted, isOffline)
	a.Until = time.Time{}
}

// Given is what a person gives of an item: the item itself, narrower scopes, or nothing.
type Given struct {
	Item   string   // as asked for
	Scopes []string // instead of it; or the claim
}

// IsWhole reports whether all of the item is given.
func (g Given) IsWhole() bool { return slices.Contains(g.Scopes, g.Item) }

// Answer is what a person gives of all that they were asked for.
type Answer struct {
	Given []Given   // by item, in their order
	Until time.Time // when offline_access ends, if it was given; zero if they do not say
}

// Of returns what is given of an item.
func (a *Answer) Of(item string) []string {
	for _, g := range a.Given {
		if g.Item == item {
			return g.Scopes
		}
	}
	return nil
}

// asks reports whether the person was asked for an item.
func (a *Answer) asks(item string) bool {
	return slices.ContainsFunc(a.Given, func(g Given) bool { return g.Item == item })
}
