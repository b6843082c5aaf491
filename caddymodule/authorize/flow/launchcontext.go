package flow

import (
	"cmp"
	"net/url"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
)

// launchContext is what is known so far of what a client is launched with.
type launchContext struct {
	handle     string             // the parameter launch, if any
	registered *launch.Registered // what it stands for
	picked     picked             // on our pages
}

// isFor reports whether the person may use the launch, if there is one.
func (l *launchContext) isFor(person launch.Person) bool {
	return l.registered == nil || l.registered.IsFor(person.Subject, person.FHIRUser)
}

// has reports whether fhirContext has a resource of a type, in lower case.
func (l *launchContext) has(wanted string) bool {
	return l.registered != nil && slices.ContainsFunc(l.registered.FHIRContext, func(r launch.Reference) bool {
		named, _, _ := strings.Cut(r.Reference, "/")
		return strings.ToLower(cmp.Or(r.Type, named)) == wanted
	})
}

// shortTokens reports whether access tokens are to end within seconds.
func (l *launchContext) shortTokens() bool {
	return l.registered != nil && l.registered.Simulated == launch.ShortToken
}

// launcher is the client that vouches for the patient of the launch, or "" if the person
// chose the patient.
func (l *launchContext) launcher() string {
	if l.registered == nil || l.registered.Patient == "" {
		return ""
	}
	return l.registered.Launcher
}

// picked is what a person chose on the pages, which carry it on sealed.
type picked struct {
	patient, name string // the id, and the name to show
	encounter     string
	noPatient     bool // there is none to choose
	noEncounter   bool // there is none, or they do not want to say which
}

// encode writes a text without spaces.
func (p picked) encode() string {
	flag := func(set bool) string { return map[bool]string{true: "1"}[set] }
	return url.Values{
		"patient": {p.patient}, "name": {p.name}, "encounter": {p.encounter},
		"no_patient": {flag(p.noPatient)}, "no_encounter": {flag(p.noEncounter)},
	}.Encode()
}

// readPicked reads what encode wrote.
func readPicked(text string) picked {
	v, err := url.ParseQuery(text)
	if err != nil {
		return picked{}
	}
	return picked{
		patient: v.Get("patient"), name: v.Get("name"), encounter: v.Get("encounter"),
		noPatient: v.Get("no_patient") != "", noEncounter: v.Get("no_encounter") != "",
	}
}
