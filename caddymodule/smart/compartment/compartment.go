package compartment

import (
	_ "embed" // for the table
	"slices"
	"strings"
	"sync"
)

//go:generate go run ../generate -compartments r4.tsv ../generate/hapi-fhir-validation-resources-r4-8.8.0.jar

// r4 has a line for each type in each compartment: compartment, type, and the names of search parameters.
//
//go:embed r4.tsv
var r4 string

// self is, among the parameters of a type, that the resource for which the compartment is has the id itself. R4 writes
// it so.
const self = "{def}"

// key is the name of a compartment and a type in it.
type key struct{ compartment, resourceType string }

// table returns the parameters by compartment and type. It is read once.
var table = sync.OnceValue(func() map[key][]string {
	members := make(map[key][]string, 256)
	for line := range strings.Lines(r4) {
		columns := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		members[key{columns[0], columns[1]}] = strings.Fields(columns[2])
	}
	return members
})

// Membership is how the resources of a type are in a compartment.
type Membership struct {
	// Params are the names of the search parameters that refer to what the compartment is for; any one of them will do.
	Params []string
	// Self says that the compartment is that of a resource of this very type, which is in it.
	Self bool
}

// Members returns how resources of a type are in the compartments with a name: Patient, Encounter, RelatedPerson,
// Practitioner or Device. Ok is false if they are in none.
func Members(name, resourceType string) (m Membership, ok bool) {
	params, ok := table()[key{name, resourceType}]
	at := slices.Index(params, self)
	if at < 0 {
		return Membership{Params: params}, ok
	}
	return Membership{Params: slices.Concat(params[:at], params[at+1:]), Self: true}, ok
}

// Patient returns the names of the search parameters by which resources of a type are in the compartment of a patient;
// ok is false for a type of which none is. For Patient there are none, though R4 lists link: a patient is in its own
// compartment, by its id.
func Patient(resourceType string) (params []string, ok bool) {
	m, ok := Members("Patient", resourceType)
	if m.Self {
		return nil, true
	}
	return m.Params, ok
}
