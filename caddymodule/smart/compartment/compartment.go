// Package compartment holds the compartments of FHIR R4, and decides whether a resource is in that of a patient.
//
// [Members] are the definitions, from the table r4.tsv (see ../generate/SOURCE.md), by which InPatient and Patients judge.
//
// A compartment is defined by search parameters: a resource is a member if one of those listed for its type refers to
// what the compartment is for. Only literal references count, since only they name a resource for certain. R4 says
// besides that a patient's compartment takes in those of linked patients; here each is on its own, and so is Patient,
// which is in its own compartment and not, by Patient.link, in another's.
//
// Reference: FHIR R4, CompartmentDefinition (https://hl7.org/fhir/R4/compartmentdefinition.html).
package compartment

import (
	"bytes"
	_ "embed" // for the table
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

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
	params, ok = table()[key{"Patient", resourceType}]
	if slices.Contains(params, self) {
		return nil, true
	}
	return params, ok
}

// patientPaths returns, by type, the paths to the references that make a resource a member of a patient's compartment.
var patientPaths = sync.OnceValue(func() map[string][]resource.Path {
	paths := make(map[string][]resource.Path)
	for k := range table() {
		if k.compartment == "Patient" {
			paths[k.resourceType] = pathsOf(k.resourceType)
		}
	}
	return paths
})

// pathsOf returns the paths of a type's parameters, each once. What they lead to is looked at for patients anyway, so a
// parameter that is for references to patients only is no other path than one for all references.
func pathsOf(resourceType string) []resource.Path {
	var paths []resource.Path
	params, _ := Patient(resourceType)
	for _, name := range params {
		parameter, _ := searchparam.Lookup(resourceType, name)
		for _, path := range parameter.Paths {
			path.Target = ""
			same := func(other resource.Path) bool { return slices.Equal(path.Elements, other.Elements) }
			if !slices.ContainsFunc(paths, same) {
				paths = append(paths, path)
			}
		}
	}
	return paths
}

// IsMembership reports whether all that a parameter of a type looks at puts resources into compartments of patients: what
// it finds of a patient is in that patient's.
func IsMembership(resourceType string, p searchparam.Parameter) bool {
	paths := patientPaths()[resourceType]
	return p.Kind == searchparam.Reference && len(p.Paths) > 0 && !slices.ContainsFunc(p.Paths, func(path resource.Path) bool {
		return !slices.ContainsFunc(paths, func(of resource.Path) bool {
			return slices.Equal(of.Elements, path.Elements) && len(of.Filters) == 0
		})
	})
}

// InPatient reports whether a resource is in the compartment of the patient with an id.
func InPatient(r resource.Resource, patientID string) bool {
	if r.Type == "Patient" {
		return r.ID == patientID && patientID != ""
	}
	paths := patientPaths()[r.Type]
	for i := range paths {
		element, ok := r.Member(paths[i].Elements[0])
		if !ok || len(paths[i].Elements) > 1 {
			continue
		}
		literal, _ := resource.Field(element, "reference") // mostly in the one way that needs no reading
		id, ok := bytes.CutPrefix(literal, []byte(`"Patient/`))
		if ok && len(id) == len(patientID)+1 && string(id[:len(patientID)]) == patientID && patientID != "" {
			return true
		}
	}
	return refersToPatient(r, patientID)
}

// refersToPatient is the rest of InPatient, by itself because the iterator puts the resource on the heap.
func refersToPatient(r resource.Resource, patientID string) bool {
	for element := range membershipReferences(r) {
		to, _, ok := r.Refers(element)
		if ok && to.Type == "Patient" && to.Base == "" && to.ID == patientID {
			return true
		}
	}
	return false
}

// Patients returns the ids of all patients in whose compartments a resource is, some perhaps several times. A reference
// to a patient of another server comes out as it is written, and one that may name a patient but cannot be read so too,
// in quotation marks: neither is an id, so nobody who compares the two takes it for one. So does one to a contained Patient, who is
// nobody that has a record here. A reference to another contained resource counts as those that put that into
// compartments.
func Patients(r resource.Resource) iter.Seq[string] {
	return func(yield func(string) bool) {
		if r.Type == "Patient" {
			if r.ID != "" {
				yield(r.ID)
			}
			return
		}
		for element := range membershipReferences(r) {
			if !yieldPatients(r, element, yield) {
				return
			}
		}
	}
}

// NamesContained reports whether a reference that says whose a resource is may be to a contained Patient: one that puts the
// resource into compartments, or is its search parameter patient. The container is the resource itself, or the one that
// contains it. A reference to a contained resource that is missing counts, too.
func NamesContained(r, container resource.Resource) bool {
	for element := range chain(membershipReferences(r), values(r, "patient")) {
		to, _, ok := r.Refers(element)
		if ok && to.Contained != "" && !containsOther(container, to.Contained) {
			return true
		}
	}
	return false
}

// containsOther reports whether a contained id is that of a resource other than a Patient, and of that one alone.
func containsOther(container resource.Resource, id string) bool {
	found := false
	for text := range container.Contained() {
		contained, err := container.Part(text)
		if err != nil || contained.ID != id {
			continue
		}
		if found || contained.Type == "Patient" {
			return false
		}
		found = true
	}
	return found
}

// Named returns the patients that a search parameter of a resource names, as [Patients] does.
func Named(r resource.Resource, name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for element := range values(r, name) {
			if !yieldPatients(r, element, yield) {
				return
			}
		}
	}
}

// values returns the elements at which a search parameter looks.
func values(r resource.Resource, name string) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		parameter, _ := searchparam.Lookup(r.Type, name)
		for _, path := range parameter.Paths {
			path.Target = ""
			for element := range r.Values(path) {
				if !yield(element) {
					return
				}
			}
		}
	}
}

func chain(all ...iter.Seq[[]byte]) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for _, elements := range all {
			for element := range elements {
				if !yield(element) {
					return
				}
			}
		}
	}
}

// yieldPatients yields what a reference says of patients.
func yieldPatients(r resource.Resource, element []byte, yield func(string) bool) bool {
	to, literal, ok := r.Refers(element)
	if !ok || to.Contained == "" {
		patient := named(to, literal, ok)
		return patient == "" || yield(patient)
	}
	contained, _ := r.FindContained(to.Contained)
	if contained.Type == "Patient" {
		return yield(literal)
	}
	for element := range membershipReferences(contained) {
		to, literal, ok := contained.Refers(element)
		if patient := named(to, literal, ok); patient != "" && !yield(patient) {
			return false
		}
	}
	return true
}

// named returns the patient that a reference names, if it may name one.
func named(to resource.Reference, literal string, ok bool) string {
	switch {
	case !ok && literal != "" && !strings.HasPrefix(literal, "urn:"):
		return strconv.Quote(literal)
	case to.Type != "Patient":
		return ""
	case to.Base != "":
		return literal
	default:
		return to.ID
	}
}

// membershipReferences returns the elements that put a resource into compartments of patients.
func membershipReferences(r resource.Resource) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for _, path := range patientPaths()[r.Type] {
			for element := range r.Values(path) {
				if !yield(element) {
					return
				}
			}
		}
	}
}
