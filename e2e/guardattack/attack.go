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
	Path    string // below the FHIR base, including the query
	Body    string
	Headers []string // names and values
	// Victim is the token of a record in the request that its sender may not know. May be empty.
	Victim string
}

// With returns the attack with an additional query parameter.
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

// OnAbsent returns the same attack on an absent record. A different response reveals that the victim exists.
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

// String returns the request as in a log.
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

// Capabilities are the supported interactions of a server for a type.
type Capabilities struct {
	SearchParam      []Parameter
	SearchInclude    []string
	SearchRevInclude []string
}

// Attacker generates attacks by a holder of access to one patient's records.
type Attacker struct {
	World        *World
	Capabilities map[string]Capabilities
	Own          byte // the patient's letter

	// Types are the types in the token's scopes, which most attacks target. Empty if the scopes contain no types.
	Types []string
	// Bases are addresses that a server could recognize as those of its FHIR API.
	Bases []string

	*rand.Rand
}

// NewAttacker returns an attacker that generates the same attacks for the same seed.
func NewAttacker(w *World, capabilities map[string]Capabilities, own byte, seed uint64) *Attacker {
	return &Attacker{World: w, Capabilities: capabilities, Own: own, Rand: rand.New(rand.NewPCG(seed, uint64(own)))}
}

// Draw returns the next attack.
func (a *Attacker) Draw() Attack {
	s := searches{a}
	kind := pick(a, s.search, s.search, s.search, s.search, s.aimed, s.aimed, a.read, a.read, a.operation, a.write, a.bundle)
	return disguiser{a}.disguise(kind())
}

func pick[T any](by interface{ IntN(n int) int }, of ...T) T { return of[by.IntN(len(of))] }

// oneIn returns true once in n times.
func (a *Attacker) oneIn(n int) bool { return a.IntN(n) == 0 }

// victim returns a record of another patient or, sometimes, of nobody.
func (a *Attacker) victim() Record {
	if a.oneIn(10) {
		return pick(a, a.World.Of(Hidden)...)
	}
	return a.about(a.World.Of(a.other()))
}

// other returns another patient, usually the next one, whom some records of both patients reference.
func (a *Attacker) other() byte {
	at := strings.IndexByte(a.World.Patients, a.Own)
	return a.World.Patients[(at+pick(a, 1, 1, 2, 3, len(a.World.Patients)-1))%len(a.World.Patients)]
}

func (a *Attacker) own() Record { return a.about(a.World.Of(a.Own)) }

// about returns one of the records, usually of a type in the scopes.
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
		return a.own()
	}
	return a.victim()
}

func (a *Attacker) resourceType() string {
	if len(a.Types) > 0 && !a.oneIn(4) {
		return pick(a, a.Types...)
	}
	return pick(a, pick(a, a.World.Types()...), "Observation", "Condition", "Patient", "Encounter")
}
