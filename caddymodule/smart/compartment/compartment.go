// Package compartment contains the compartments of FHIR R4 and determines whether a resource is in the compartment of a
// patient.
//
// [LookUp] returns the definitions in the table r4.tsv (see ../generate/SOURCE.md), on which IsInPatient and Patients are
// based.
//
// A compartment is defined by search parameters: a resource is a member if a parameter listed for its type refers to the owner
// of the compartment. Only literal references are considered, because only they identify a resource unambiguously. R4 also
// includes the compartments of linked patients. In this package, each patient has a separate compartment. A Patient is only in
// its own compartment, regardless of Patient.link.
//
// Reference: FHIR R4, CompartmentDefinition (https://hl7.org/fhir/R4/compartmentdefinition.html).
package compartment

import (
	"bytes"
	_ "embed" // for r4Table
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// r4Table has a line for each type in each compartment: the compartment, the type, and the names of search parameters.
//
//go:embed r4.tsv
var r4Table string

// selfParameter is R4's pseudo-parameter for a type with resources that own the compartment: they are members by their id.
const selfParameter = "{def}"

type typeKey struct{ compartment, resourceType string }

// parametersByType returns the parameters in r4Table by compartment and type.
var parametersByType = sync.OnceValue(func() map[typeKey][]string {
	members := make(map[typeKey][]string, 256)
	for line := range strings.Lines(r4Table) {
		columns := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		members[typeKey{columns[0], columns[1]}] = strings.Fields(columns[2])
	}
	return members
})

// Membership determines which resources of a type are in a compartment.
type Membership struct {
	// Params are the names of the search parameters, one of which must refer to the owner of the compartment.
	Params []string
	// OwnsCompartment is true if resources of this type own the compartment. They are also members.
	OwnsCompartment bool
}

// LookUp returns how resources of a type become members of the compartments called name: Patient, Encounter, RelatedPerson,
// Practitioner or Device. ok is false if they are never members.
func LookUp(name, resourceType string) (m Membership, ok bool) {
	params, ok := parametersByType()[typeKey{name, resourceType}]
	at := slices.Index(params, selfParameter)
	if at < 0 {
		return Membership{Params: params}, ok
	}
	return Membership{Params: slices.Concat(params[:at], params[at+1:]), OwnsCompartment: true}, ok
}

// PatientParameters returns the names of the search parameters that put resources of a type into the compartment of a patient.
// ok is false if the type is outside of it. For Patient, the list is empty, although R4 lists link: a patient is in its own
// compartment because of its id.
func PatientParameters(resourceType string) (params []string, ok bool) {
	params, ok = parametersByType()[typeKey{"Patient", resourceType}]
	if slices.Contains(params, selfParameter) {
		return nil, true
	}
	return params, ok
}

// patientPaths returns the paths to the references that put a resource into a patient's compartment, by type.
var patientPaths = sync.OnceValue(func() map[string][]resource.Path {
	paths := make(map[string][]resource.Path)
	for k := range parametersByType() {
		if k.compartment == "Patient" {
			paths[k.resourceType] = membershipPaths(k.resourceType)
		}
	}
	return paths
})

// membershipPaths returns the distinct paths of a type's parameters. A parameter for references to patients has the same path
// as one for all references, because other targets do not affect membership.
func membershipPaths(resourceType string) []resource.Path {
	var paths []resource.Path
	params, _ := PatientParameters(resourceType)
	for _, name := range params {
		parameter, _ := searchparam.Lookup(resourceType, name)
		for _, path := range parameter.Paths {
			path.Target = ""
			hasSameElements := func(other resource.Path) bool { return slices.Equal(path.Elements, other.Elements) }
			if !slices.ContainsFunc(paths, hasSameElements) {
				paths = append(paths, path)
			}
		}
	}
	return paths
}

// IsMembership reports whether every element of a type's parameter puts resources into compartments of patients. If so, its
// matches for a patient are in that patient's compartment.
func IsMembership(resourceType string, p searchparam.Parameter) bool {
	paths := patientPaths()[resourceType]
	return p.Kind == searchparam.Reference && len(p.Paths) > 0 && !slices.ContainsFunc(p.Paths, func(path resource.Path) bool {
		return !slices.ContainsFunc(paths, func(of resource.Path) bool {
			return slices.Equal(of.Elements, path.Elements) && len(of.Filters) == 0
		})
	})
}

// IsInPatient reports whether a resource is in the compartment of the patient with the given id.
func IsInPatient(r resource.Resource, patientID string) bool {
	if r.Type == "Patient" {
		return r.ID == patientID && patientID != ""
	}
	paths := patientPaths()[r.Type]
	for i := range paths {
		element, ok := r.Member(paths[i].Elements[0])
		if !ok || len(paths[i].Elements) > 1 {
			continue
		}
		literal, _ := resource.Field(element, "reference") // fast path: the usual form of a reference doesn't need parsing
		id, ok := bytes.CutPrefix(literal, []byte(`"Patient/`))
		if ok && len(id) == len(patientID)+1 && string(id[:len(patientID)]) == patientID && patientID != "" {
			return true
		}
	}
	return refersToPatient(r, patientID)
}

// refersToPatient is the slow path of IsInPatient. It is separate because its iterator makes the resource escape to the heap.
func refersToPatient(r resource.Resource, patientID string) bool {
	for element := range membershipReferences(r) {
		to, _, ok := r.ReferenceTarget(element)
		if ok && to.Type == "Patient" && to.Base == "" && to.ID == patientID {
			return true
		}
	}
	return false
}

// Patients returns the ids of all patients with compartments that contain a resource, possibly with duplicates. A reference to
// a patient on another server or to a contained Patient is returned as written, and an unparsable one in quotation marks:
// neither equals an id of a patient on this server. For a reference to any other contained resource, the references of that
// resource are used instead.
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

// MayReferenceContained reports whether a reference that determines a resource's patient may refer to a contained Patient: a
// reference that puts the resource into compartments, or one in its search parameter patient. container is the resource itself,
// or the resource that contains it. A reference to a missing contained resource is treated in the same way.
func MayReferenceContained(r, container resource.Resource) bool {
	for element := range concatenate(membershipReferences(r), parameterElements(r, "patient")) {
		to, _, ok := r.ReferenceTarget(element)
		if ok && to.Contained != "" && !isContainedNonPatient(container, to.Contained) {
			return true
		}
	}
	return false
}

// isContainedNonPatient reports whether exactly one contained resource has the id and it is not a Patient.
func isContainedNonPatient(container resource.Resource, id string) bool {
	found := false
	for text := range container.Contained() {
		contained, err := container.ParsePart(text)
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

// ParameterPatients returns the patients to which a search parameter of a resource refers, in the same form as [Patients].
func ParameterPatients(r resource.Resource, name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for element := range parameterElements(r, name) {
			if !yieldPatients(r, element, yield) {
				return
			}
		}
	}
}

// parameterElements returns the elements of a search parameter.
func parameterElements(r resource.Resource, name string) iter.Seq[[]byte] {
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

func concatenate(all ...iter.Seq[[]byte]) iter.Seq[[]byte] {
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

func yieldPatients(r resource.Resource, element []byte, yield func(string) bool) bool {
	to, literal, ok := r.ReferenceTarget(element)
	if !ok || to.Contained == "" {
		patient := patientID(to, literal, ok)
		return patient == "" || yield(patient)
	}
	contained, _ := r.FindContained(to.Contained)
	if contained.Type == "Patient" {
		return yield(literal)
	}
	for element := range membershipReferences(contained) {
		to, literal, ok := contained.ReferenceTarget(element)
		if patient := patientID(to, literal, ok); patient != "" && !yield(patient) {
			return false
		}
	}
	return true
}

// patientID returns the patient to which a reference may refer, or "" if it refers to none.
func patientID(to resource.Reference, literal string, ok bool) string {
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
