package guardattack

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
)

// Attack is a request that tries to read or change another patient's data.
type Attack struct {
	Method  string
	Path    string // path and query relative to the FHIR base
	Body    string
	Headers []string // alternating names and values
	// Victim is the token of a record that the sender may not read, if the request contains one.
	Victim string
}

// With returns the attack with another query parameter appended.
func (a Attack) With(parameter string) Attack {
	if a.Method == http.MethodPost && strings.HasSuffix(a.Path, "_search") {
		a.Body = joinQuery(a.Body, parameter)
		return a
	}
	path, query, _ := strings.Cut(a.Path, "?")
	a.Path = path + "?" + joinQuery(query, parameter)
	return a
}

func joinQuery(query, more string) string {
	if query == "" {
		return more
	}
	return query + "&" + more
}

// OnAbsent returns the same attack on an absent record. If its response differs, the response reveals that the victim exists.
func (a Attack) OnAbsent() Attack {
	if a.Victim == "" {
		return a
	}
	a.Path, a.Body = ReplaceToken(a.Path, a.Victim), ReplaceToken(a.Body, a.Victim)
	headers := make([]string, len(a.Headers))
	for i, text := range a.Headers {
		headers[i] = ReplaceToken(text, a.Victim)
	}
	a.Headers = headers
	return a
}

// String returns the request as text for error messages.
func (a Attack) String() string {
	text := a.Method + " " + a.Path
	for i := 0; i < len(a.Headers); i += 2 {
		text += " | " + a.Headers[i] + ": " + a.Headers[i+1]
	}
	if a.Body != "" {
		text += " | " + a.Body
	}
	return text
}

// Parameter is a search parameter that a server supports.
type Parameter struct{ Name, Type string }

// Capabilities lists the search parameters and includes that a server supports for a type.
type Capabilities struct {
	SearchParam      []Parameter
	SearchInclude    []string
	SearchRevInclude []string
}

// Attacker generates attacks by a token holder who has access to one patient's records.
type Attacker struct {
	World         *World
	Capabilities  map[string]Capabilities
	PatientLetter byte // letter of the patient with the accessible records

	// Types are the resource types in the token's scopes, which most attacks target. Empty if the scopes contain no types.
	Types []string
	// Bases are URLs that a server could recognize as its FHIR base URL.
	Bases []string

	*rand.Rand
}

// NewAttacker returns an attacker. For the same seed, it generates the same attacks.
func NewAttacker(w *World, capabilities map[string]Capabilities, own byte, seed uint64) *Attacker {
	return &Attacker{World: w, Capabilities: capabilities, PatientLetter: own, Rand: rand.New(rand.NewPCG(seed, uint64(own)))}
}

// Draw returns the next random attack.
func (a *Attacker) Draw() Attack {
	s := searches{a}
	kind := pick(a, s.search, s.search, s.search, s.search, s.aimed, s.aimed, a.read, a.read, a.operation, a.write, a.bundle)
	return disguiser{a}.disguise(kind())
}

func pick[T any](by interface{ IntN(n int) int }, of ...T) T { return of[by.IntN(len(of))] }

// oneIn returns true with probability 1/n.
func (a *Attacker) oneIn(n int) bool { return a.IntN(n) == 0 }

// victim returns a record of another patient or, in one of ten cases, a record that nobody may read.
func (a *Attacker) victim() Record {
	if a.oneIn(10) {
		return pick(a, a.World.Of(Hidden)...)
	}
	return a.about(a.World.Of(a.other()))
}

// other returns another patient. It is usually the next one, because some records reference both patients.
func (a *Attacker) other() byte {
	at := strings.IndexByte(a.World.Patients, a.PatientLetter)
	return a.World.Patients[(at+pick(a, 1, 1, 2, 3, len(a.World.Patients)-1))%len(a.World.Patients)]
}

func (a *Attacker) ownRecord() Record { return a.about(a.World.Of(a.PatientLetter)) }

// about returns a random record, usually of a type in the scopes.
func (a *Attacker) about(records []Record) Record {
	named := records
	if !a.oneIn(4) {
		named = slices.DeleteFunc(slices.Clone(records), func(r Record) bool { return !slices.Contains(a.Types, r.Type) })
	}
	if len(named) == 0 {
		named = records
	}
	return pick(a, named...)
}

func (a *Attacker) anybodys() Record {
	switch a.IntN(8) {
	case 0:
		return pick(a, a.World.Of(Everybody)...)
	case 1, 2:
		return a.ownRecord()
	}
	return a.victim()
}

func (a *Attacker) resourceType() string {
	if len(a.Types) > 0 && !a.oneIn(4) {
		return pick(a, a.Types...)
	}
	return pick(a, pick(a, a.World.Types()...), "Observation", "Condition", "Patient", "Encounter")
}
