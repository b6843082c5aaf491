package access

import (
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/compartment"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// Covers reports whether a grant lets a client read a resource: the grant selects it, and it is in the record of the grant's
// patient. Grants without a patient also cover everything that the resource carries.
func (r *Rights) Covers(g Grant, res resource.Resource) Verdict {
	return r.covers(&g, res, smart.Read)
}

// CoversStored is like Covers, but for the stored version of a resource that a client changes. On carried resources, any permission
// suffices.
func (r *Rights) CoversStored(g Grant, res resource.Resource) Verdict {
	return r.covers(&g, res, allPermissions)
}

// CoversNew is like Covers, but for both versions of a resource that a client writes. Under a grant that is bound to a patient, the
// resource must belong to that patient alone: a write to one record must not be visible in another.
func (r *Rights) CoversNew(g Grant, res resource.Resource) Verdict {
	v := r.covers(&g, res, allPermissions)
	if g.Patient == "" || g.Only != (interaction.Reference{}) {
		return v
	}
	return r.recordOf(g.Patient, allPermissions).written(res, v)
}

func (r *Rights) covers(g *Grant, res resource.Resource, by smart.Permission) Verdict {
	switch {
	case !r.selects(g, res):
		return outside
	case g.Patient == "":
		return covered
	}
	return r.recordOf(g.Patient, by).judge(res)
}

// selects reports whether a resource has the grant's type, and matches its constraint.
func (r *Rights) selects(g *Grant, res resource.Resource) bool {
	switch {
	case g.ByRule, g.Type != smart.AnyType && g.Type != res.Type:
		return false
	case g.Only != (interaction.Reference{}):
		return g.Only == interaction.Reference{Type: res.Type, ID: res.ID}
	}
	return !slices.ContainsFunc(g.Constraint, func(p smart.Parameter) bool { return !r.Matches(p, res) })
}

// ResourceAccess contains a token's permissions on a resource that others depend on.
type ResourceAccess struct {
	// InRecord is true if the resource is in the patient's record or in every record, even if no scope covers it.
	InRecord bool
	// BelongsToPatient is true if the resource belongs to the patient.
	BelongsToPatient bool
	// Permissions are the permissions of the scopes that cover the resource. 0: no scope does.
	Permissions smart.Permission
}

// AccessTo returns the token's permissions on a resource in a patient's record; without a patient, in all records. A resource
// that depends on others has none.
func (r *Rights) AccessTo(res resource.Resource, patient string) (s ResourceAccess) {
	if patient != "" && !isCertain(record{rules: r.Shared, patient: patient}.judge(res)) {
		return s
	}
	s.InRecord, s.BelongsToPatient = true, r.Shared.isOwn(res)
	for n := range r.Grants {
		g := &r.Grants[n]
		switch {
		case !g.IsFor(patient):
		case isCertain(r.covers(g, res, smart.Read)):
			s.Permissions |= g.Permission
		case isCertain(r.covers(g, res, allPermissions)):
			s.Permissions |= g.Permission &^ smart.Read
		}
	}
	return s
}

func isCertain(v Verdict) bool { return v.Covered && len(v.Needed) == 0 }

// IsFor reports whether a grant applies to the record of a patient. A grant for one patient never applies to another.
func (g Grant) IsFor(patient string) bool { return g.Patient == "" || g.Patient == patient }

// Matches reports whether a search with the parameter would find the resource. It is false if the parameter cannot be
// evaluated.
func (r *Rights) Matches(p smart.Parameter, res resource.Resource) bool {
	return matches(r.parameters, p, res)
}

// MatchesSearch reports whether a search with a parameter of a [Confinement] or constraint finds a resource.
func (r *Rights) MatchesSearch(p smart.Parameter, res resource.Resource) bool {
	if p.Name == missingPatient {
		return !OfPatients(res)
	}
	return r.Matches(p, res)
}

// Verdict is the result of judging a resource by a grant.
type Verdict struct {
	// Covered is true if the grant covers the resource, provided that all of Needed are covered too.
	Covered bool
	// Needed are the resources on which the resource depends. Empty if it depends on none.
	Needed []interaction.Reference
	// RequiredPermissions are alternative permissions; the token's scopes must give at least one of them on each of Needed.
	RequiredPermissions smart.Permission
	// RequiresPatientOwned is true if at least one of Needed must belong to the patient rather than be in every record.
	RequiresPatientOwned bool
}

var (
	covered  = Verdict{Covered: true}
	outside  = Verdict{}
	byItself = func(ok bool) Verdict { return Verdict{Covered: ok} }
)

// and returns the verdict with an additional condition.
func (v Verdict) and(ok bool) Verdict {
	if !ok {
		return outside
	}
	return v
}

// record is the part of a patient's record that a token's scopes cover.
//
// A resource may carry others: contained resources, the entries of a Bundle, the targets of a Provenance, and the
// securityContext of a Binary. The carrier must not reveal more than the resources themselves, so the scopes must cover these
// too. Contained resources of types that every patient may read are exempt: they exist only within the carrier and have no
// patient.
type record struct {
	rules   Shared
	patient string
	rights  *Rights          // nil: carried resources need no scope
	by      smart.Permission // permissions; the scopes must give one of them on carried resources
}

func (r *Rights) recordOf(patient string, by smart.Permission) record {
	return record{rules: r.Shared, patient: patient, rights: r, by: by}
}

// judge reports whether a resource is in the record.
func (c record) judge(res resource.Resource) Verdict {
	if !c.containsOnly(res) {
		return outside
	}
	return c.inside(res)
}

// allows reports whether a scope covers a carried resource, regardless of its patient.
func (c record) allows(res resource.Resource) bool {
	return c.rights == nil || slices.ContainsFunc(c.rights.Grants, func(g Grant) bool {
		return g.Permission&c.by != 0 && g.IsFor(c.patient) && c.rights.selects(&g, res)
	})
}

// allowsSome reports whether a scope could cover a carried resource of a type; all reports whether one covers every resource of
// the type in the record.
func (c record) allowsSome(resourceType string) (some, all bool) {
	if c.rights == nil {
		return true, true
	}
	for n := range c.rights.Grants {
		g := &c.rights.Grants[n]
		if g.Permission&c.by != 0 && g.IsFor(c.patient) && !g.ByRule && (g.Type == smart.AnyType || g.Type == resourceType) {
			some, all = true, all || len(g.Constraint) == 0 && g.Only == (interaction.Reference{})
		}
	}
	return some, all
}

// containsOnly reports whether all contained resources name no other patient and are covered by the scopes. A contained
// resource that names no patient belongs to its container.
func (c record) containsOnly(res resource.Resource) bool {
	if _, ok := res.Member("contained"); !ok {
		return true
	}
	for text := range res.Contained() {
		contained, err := res.Part(text)
		if err != nil || !c.namesNoOther(contained, res) || !c.mayContain(contained) {
			return false
		}
	}
	return true
}

// mayContain reports whether the scopes cover a contained resource, and it carries no others.
func (c record) mayContain(contained resource.Resource) bool {
	if c.carries(contained) {
		return false
	}
	return c.rules.IsForAllPatients(contained.Type) || c.allows(contained)
}

// carries reports whether a contained resource may carry others, which FHIR forbids (R4 references.html#contained) and which
// are not judged. A resource of a type that the site has closed cannot be judged by itself, so it counts as carrying.
func (c record) carries(contained resource.Resource) bool {
	_, nested := contained.Member("contained")
	_, secured := contained.Member("securityContext")
	switch {
	case nested, secured, contained.Type == "Bundle", contained.Type == "Parameters":
		return true
	case c.rules.IsSecured(contained.Type):
		return false
	}
	return c.rules.Depends(contained.Type)
}

// namesNoOther reports whether a contained resource names no other patient: by the references of compartment membership, and by
// the search parameter patient, which types outside of compartments have too. A reference to a contained Patient counts as
// another patient.
func (c record) namesNoOther(contained, container resource.Resource) bool {
	if contained.Type == "Patient" {
		return true
	}
	for id := range compartment.Patients(contained) {
		if id != c.patient {
			return false
		}
	}
	for id := range compartment.Named(contained, "patient") {
		if id != c.patient {
			return false
		}
	}
	return !compartment.NamesContained(contained, container)
}

func matches(parameters searchparam.Set, p smart.Parameter, res resource.Resource) bool {
	parameter, ok := parameters.Lookup(res.Type, p.Name)
	if !ok {
		return false
	}
	ok, err := parameter.Matches(res, p.Value)
	return ok && err == nil
}

// maxNeeded is the maximum number of dependencies of a resource.
const maxNeeded = 20

// Rules for a resource that is read.

func (c record) all(resource.Resource) Verdict { return covered }

func (c record) ownOrUnassigned(res resource.Resource) Verdict {
	own := smart.Parameter{Name: "patient", Value: "Patient/" + c.patient}
	return byItself(matches(searchparam.Set{}, own, res) || !OfPatients(res)) // R4's parameter, regardless of a site's definition
}

func (c record) inContext(res resource.Resource) Verdict {
	v, _ := c.dependent(res, "securityContext")
	return v
}

// about judges a resource by everything that it is about. A resource that also names another patient is not covered, because it
// would reveal both.
func (c record) about(res resource.Resource) Verdict {
	return c.aboutAll(res, false)
}

func (c record) judgePatientOnly(res resource.Resource) Verdict {
	return c.inCompartment(res).and(c.namesOnly(res))
}

func (c record) ofPatient(res resource.Resource) Verdict {
	return byItself(isOfPatient(res, c.patient))
}

// inCompartment judges by R4's compartment. A single reference to the patient suffices, unless another reference is to a contained
// Patient: that person has no record on this server, so the owner of the resource is unknown.
func (c record) inCompartment(res resource.Resource) Verdict {
	return byItself(compartment.InPatient(res, c.patient) && !compartment.NamesContained(res, res))
}

// Rules for a resource that a client writes and may read.

func (c record) asRead(_ resource.Resource, read Verdict) Verdict { return read }

// assigned requires that a resource belongs to this patient alone.
func (c record) assigned(res resource.Resource, read Verdict) Verdict {
	return read.and(OfPatients(res) && (!isMember(res.Type) || c.namesOnly(res)))
}

// ofOwn is for resources that depend on others: none of these may be shared with other patients.
func (c record) ofOwn(_ resource.Resource, read Verdict) Verdict {
	return read.and(!slices.ContainsFunc(read.Needed, func(of interaction.Reference) bool { return !c.rules.IsPatientOnly(of.Type) }))
}

func (c record) aboutOwn(res resource.Resource, _ Verdict) Verdict {
	return c.ofOwn(res, c.aboutAll(res, true))
}

func (c record) namingNoOther(res resource.Resource, read Verdict) Verdict {
	return read.and(c.namesOnly(res))
}

func (c record) aboutAll(res resource.Resource, writing bool) Verdict {
	switch res.Type {
	case "Provenance":
		return c.aboutTargets(res)
	case "Bundle":
		return c.inDocument(res, writing)
	}
	v := c.inCompartment(res)
	if writing {
		return c.namingNoOther(res, v)
	}
	return v
}

// aboutTargets judges a Provenance. At least one target must belong to the patient: otherwise no search would find the
// Provenance.
func (c record) aboutTargets(res resource.Resource) Verdict {
	v, namesPatient := c.dependent(res, "target")
	v.RequiresPatientOwned = v.Covered && !namesPatient
	return v.and(namesPatient || slices.ContainsFunc(v.Needed, func(of interaction.Reference) bool { return !c.rules.IsForAllPatients(of.Type) }))
}

// namesOnly reports whether a resource's membership parameters name the patient and no other.
func (c record) namesOnly(res resource.Resource) bool {
	named := 0
	for id := range compartment.Patients(res) {
		if id != c.patient {
			return false
		}
		named++
	}
	return named > 0
}

// OfPatients reports whether a resource outside of compartments names a patient. True for types without the parameter patient.
func OfPatients(res resource.Resource) bool {
	parameter, _ := searchparam.Lookup(res.Type, "patient")
	for _, path := range parameter.Paths {
		path.Target = ""
		for range res.Values(path) {
			return true
		}
	}
	return len(parameter.Paths) == 0
}

// isOfPatient reports whether a resource's search parameter patient names the patient and no other.
func isOfPatient(res resource.Resource, patient string) bool {
	parameter, _ := searchparam.Lookup(res.Type, "patient")
	named := false
	for _, path := range parameter.Paths {
		path.Target = ""
		for value := range res.Values(path) {
			to, _, ok := res.Refers(value)
			if !ok || to.Type != "Patient" || to.Base != "" || to.ID != patient {
				return false
			}
			named = true
		}
	}
	return named
}

// dependent judges a resource by the references in one element, which the scopes must all cover. The Patient itself is looked
// up only if a constraint applies to it.
func (c record) dependent(res resource.Resource, element string) (v Verdict, namesPatient bool) {
	v = Verdict{Covered: true, RequiredPermissions: c.by}
	n := 0
	for value := range res.Values(resource.Path{Elements: []string{element}}) {
		to, _, ok := res.Refers(value)
		if n++; n > maxNeeded || !ok || to.Type == "" || to.Base != "" {
			return outside, false
		}
		some, all := c.allowsSome(to.Type)
		isPatient := to.Type == "Patient" && to.ID == c.patient
		if !some {
			return outside, false
		}
		if namesPatient = namesPatient || isPatient; !isPatient || !all {
			v.Needed = append(v.Needed, interaction.Reference{Type: to.Type, ID: to.ID})
		}
	}
	return v.and(n > 0), namesPatient
}

// MayBeReferred reports whether a Binary may belong to the patient because a document names it: it has no securityContext, and
// a scope for the patient covers reading it.
func (r *Rights) MayBeReferred(res resource.Resource, patient string) bool {
	if _, says := res.Member("securityContext"); says || !r.Shared.IsSecured(res.Type) {
		return false
	}
	return slices.ContainsFunc(r.For(res.Type, smart.Read), func(g Grant) bool { return g.Patient == patient && r.selects(&g, res) })
}

// Attachments returns the URLs of a DocumentReference's contents.
func Attachments(res resource.Resource) []string {
	var all []string
	for value := range res.Values(resource.Path{Elements: []string{"content", "attachment", "url"}}) {
		all = append(all, resource.Text(value))
	}
	return all
}

// NamesOnly reports whether the references of compartment membership name a patient and no other.
func NamesOnly(res resource.Resource, patient string) bool {
	return record{patient: patient}.namesOnly(res)
}

// isMember reports whether resources of a type are in the compartments of patients.
func isMember(resourceType string) bool {
	_, ok := compartment.Patient(resourceType)
	return ok
}

// maxEntries is the maximum number of entries of a stored Bundle that is judged.
const maxEntries = 500

// document is a stored Bundle, judged by its entries.
type document struct {
	record
	bundle   resource.Resource
	writing  bool // a client writes it: its entries may name no other patient
	own      bool // an entry belongs to the patient
	needed   []interaction.Reference
	included map[interaction.Reference]bool
}

// inDocument judges a document or collection by its entries. Each entry must be covered by the scopes and belong to the patient
// or be readable for every patient; at least one must belong to the patient. An entry without a resource or with a Bundle is
// rejected. A document begins with a Composition of the patient (R4 documents.html). Bundles of other types are requests and
// responses, which reveal more than their resources.
func (c record) inDocument(bundle resource.Resource, writing bool) Verdict {
	d := document{record: c, bundle: bundle, writing: writing, included: map[interaction.Reference]bool{}}
	if kind := d.kind(); kind != "document" && kind != "collection" {
		return outside
	}
	n := 0
	for entry := range bundle.Values(resource.Path{Elements: []string{"entry"}}) {
		if n++; n > maxEntries || !d.add(entry, n == 1) {
			return outside
		}
	}
	if !d.own {
		return outside
	}
	v := Verdict{Covered: true, RequiredPermissions: c.by}
	for _, of := range d.needed {
		if !d.included[of] {
			v.Needed = append(v.Needed, of)
		}
	}
	if len(v.Needed) > maxNeeded {
		return outside
	}
	return v
}

func (d *document) add(entry []byte, first bool) bool {
	text, ok := resource.Field(entry, "resource")
	if !ok || isExchanged(entry) {
		return false
	}
	res, err := d.bundle.Part(text)
	if err != nil || !d.containsOnly(res) || !d.allows(res) {
		return false
	}
	if first && d.kind() == "document" && res.Type != "Composition" {
		return false
	}
	return d.rules.IsForAllPatients(res.Type) || d.addOwn(entry, res)
}

// addOwn judges an entry that must belong to the patient.
func (d *document) addOwn(entry []byte, res resource.Resource) bool {
	here, ok := d.isHere(entry, res)
	if !ok || res.Type == "Bundle" || res.Type == "Patient" && !here || d.writing && !d.namesNobodyElse(res) {
		return false
	}
	v := d.inside(res)
	d.own = d.own || v.Covered && compartment.InPatient(res, d.patient)
	d.needed = append(d.needed, v.Needed...)
	d.included[interaction.Reference{Type: res.Type, ID: res.ID}] = here
	return v.Covered
}

func (d *document) kind() string {
	kind, _ := d.bundle.Member("type")
	return resource.Text(kind)
}

// isExchanged reports whether an entry is part of a request or a response.
func isExchanged(entry []byte) bool {
	return slices.ContainsFunc([]string{"search", "request", "response"}, func(name string) bool {
		_, ok := resource.Field(entry, name)
		return ok
	})
}

// namesNobodyElse reports whether the membership parameters of an entry name no other patient.
func (d *document) namesNobodyElse(res resource.Resource) bool {
	for id := range compartment.Patients(res) {
		if id != d.patient {
			return false
		}
	}
	return true
}

// isHere reports whether an entry is, by its fullUrl, a copy of the resource of this server with its type and id. ok is also
// true for a URN, which identifies a resource on no server. It is false for a URL of another server, to which the entry's
// relative references would refer (R4 bundle.html#references).
func (d *document) isHere(entry []byte, res resource.Resource) (here, ok bool) {
	value, given := resource.Field(entry, "fullUrl")
	if !given {
		return res.ID != "", true
	}
	fullURL := resource.Text(value)
	if strings.HasPrefix(fullURL, "urn:") {
		return false, true
	}
	to, ok := d.bundle.ParseReference(fullURL)
	here = ok && to.Base == "" && to.Type == res.Type && to.ID == res.ID
	return here, here
}
