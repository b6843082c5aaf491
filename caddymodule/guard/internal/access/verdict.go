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

// Covers returns whether a grant lets a client read a resource: the resource must have the grant's type, match its constraint,
// and be in the record of its patient. Grants without a patient must also cover everything that the resource carries.
func (r *Rights) Covers(g Grant, res resource.Resource) Verdict {
	return r.covers(&g, res, smart.Read)
}

// CoversStored is like Covers, but for the stored version of a resource that a client changes. For carried resources, any
// permission suffices.
func (r *Rights) CoversStored(g Grant, res resource.Resource) Verdict {
	return r.covers(&g, res, allPermissions)
}

// CoversNew is like Covers, but for both versions of a resource that a client writes. Under a patient-bound grant, the resource
// must belong to that patient alone: a write to one record must not be visible in another.
func (r *Rights) CoversNew(g Grant, res resource.Resource) Verdict {
	v := r.covers(&g, res, allPermissions)
	if g.Patient == "" || g.OnlyResource != (interaction.Reference{}) {
		return v
	}
	return r.recordOf(g.Patient, allPermissions).judgeWrite(res, v)
}

func (r *Rights) covers(g *Grant, res resource.Resource, by smart.Permission) Verdict {
	switch {
	case !r.selects(g, res):
		return notCovered
	case g.Patient == "":
		return coveredVerdict
	}
	return r.recordOf(g.Patient, by).judge(res)
}

// selects reports whether a resource has the grant's type and matches its constraint.
func (r *Rights) selects(g *Grant, res resource.Resource) bool {
	switch {
	case g.DependsOnPolicy, g.Type != smart.AnyType && g.Type != res.Type:
		return false
	case g.OnlyResource != (interaction.Reference{}):
		return g.OnlyResource == interaction.Reference{Type: res.Type, ID: res.ID}
	}
	return !slices.ContainsFunc(g.Constraint, func(p smart.Parameter) bool { return !r.Matches(p, res) })
}

// ResourceAccess contains a token's permissions on a resource that other resources depend on.
type ResourceAccess struct {
	// InRecord is true if the resource is in the patient's record or in every record, even if no scope covers it.
	InRecord bool
	// BelongsToPatient is true if the resource belongs to the patient.
	BelongsToPatient bool
	// Permissions are the permissions of the scopes that cover the resource; 0 if no scope does.
	Permissions smart.Permission
}

// AccessTo returns the token's permissions on a resource in a patient's record, or in all records if patient is empty. If
// access depends on other resources, there are no permissions.
func (r *Rights) AccessTo(res resource.Resource, patient string) (s ResourceAccess) {
	if patient != "" && !isUnconditional(patientRecord{rules: r.TypeRules, patient: patient}.judge(res)) {
		return s
	}
	s.InRecord, s.BelongsToPatient = true, r.TypeRules.belongsToPatient(res)
	for n := range r.Grants {
		g := &r.Grants[n]
		switch {
		case !g.AppliesToPatient(patient):
		case isUnconditional(r.covers(g, res, smart.Read)):
			s.Permissions |= g.Permission
		case isUnconditional(r.covers(g, res, allPermissions)):
			s.Permissions |= g.Permission &^ smart.Read
		}
	}
	return s
}

func isUnconditional(v Verdict) bool { return v.Covered && len(v.Dependencies) == 0 }

// AppliesToPatient reports whether a grant applies to a patient's record. A grant for one patient never applies to another.
func (g Grant) AppliesToPatient(patient string) bool { return g.Patient == "" || g.Patient == patient }

// Matches reports whether a search with the parameter would find the resource. It is false if the parameter cannot be
// evaluated.
func (r *Rights) Matches(p smart.Parameter, res resource.Resource) bool {
	return matches(r.parameters, p, res)
}

// MatchesSearch reports whether a search with a parameter of a [Confinement] or a constraint finds a resource.
func (r *Rights) MatchesSearch(p smart.Parameter, res resource.Resource) bool {
	if p.Name == missingPatient {
		return !NamesPatient(res)
	}
	return r.Matches(p, res)
}

// Verdict is the result of judging a resource by a grant.
type Verdict struct {
	// Covered is true if the grant covers the resource, provided that all Dependencies are covered too.
	Covered bool
	// Dependencies are the resources on which the judged resource depends; may be empty.
	Dependencies []interaction.Reference
	// RequiredPermissions are alternatives: the scopes must grant at least one of them on each of Dependencies.
	RequiredPermissions smart.Permission
	// RequiresPatientOwned is true if one of Dependencies must belong to the patient, not just be in every record.
	RequiresPatientOwned bool
}

var (
	coveredVerdict = Verdict{Covered: true}
	notCovered     = Verdict{}
	coveredIf      = func(ok bool) Verdict { return Verdict{Covered: ok} }
)

// and returns the verdict with an additional condition.
func (v Verdict) and(ok bool) Verdict {
	if !ok {
		return notCovered
	}
	return v
}

// patientRecord is the part of a patient's record that a token's scopes cover.
//
// A resource may carry others: contained resources, the entries of a Bundle, the targets of a Provenance, and the
// securityContext of a Binary. The carrier must not reveal more than the carried resources would, so the scopes must also cover
// those. Contained resources of types that every patient may read are exempt: they exist only within the carrier and have no
// patient.
type patientRecord struct {
	rules       TypeRules
	patient     string
	rights      *Rights          // nil if carried resources don't need a scope
	permissions smart.Permission // the scopes must grant one of these permissions on carried resources
}

func (r *Rights) recordOf(patient string, by smart.Permission) patientRecord {
	return patientRecord{rules: r.TypeRules, patient: patient, rights: r, permissions: by}
}

// judge judges whether a resource is in the record.
func (c patientRecord) judge(res resource.Resource) Verdict {
	if !c.allowsAllContained(res) {
		return notCovered
	}
	return c.judgeRead(res)
}

// allows reports whether a scope covers a carried resource, whichever patient it belongs to.
func (c patientRecord) allows(res resource.Resource) bool {
	return c.rights == nil || slices.ContainsFunc(c.rights.Grants, func(g Grant) bool {
		return g.Permission&c.permissions != 0 && g.AppliesToPatient(c.patient) && c.rights.selects(&g, res)
	})
}

// scopeCoverage reports whether a scope could cover a carried resource of a type (some), and whether one covers every resource
// of the type in the record (all).
func (c patientRecord) scopeCoverage(resourceType string) (some, all bool) {
	if c.rights == nil {
		return true, true
	}
	for n := range c.rights.Grants {
		g := &c.rights.Grants[n]
		if g.Permission&c.permissions != 0 && g.AppliesToPatient(c.patient) && !g.DependsOnPolicy && (g.Type == smart.AnyType || g.Type == resourceType) {
			some, all = true, all || len(g.Constraint) == 0 && g.OnlyResource == (interaction.Reference{})
		}
	}
	return some, all
}

// allowsAllContained reports whether no contained resource refers to another patient and the scopes cover all of them. A
// contained resource that does not refer to a patient belongs to its container.
func (c patientRecord) allowsAllContained(res resource.Resource) bool {
	if _, ok := res.Member("contained"); !ok {
		return true
	}
	for text := range res.Contained() {
		contained, err := res.ParsePart(text)
		if err != nil || !c.namesNoOtherPatient(contained, res) || !c.mayContain(contained) {
			return false
		}
	}
	return true
}

// mayContain reports whether the scopes cover a contained resource and it carries no other resources.
func (c patientRecord) mayContain(contained resource.Resource) bool {
	if c.mayCarryOthers(contained) {
		return false
	}
	return c.rules.IsForAllPatients(contained.Type) || c.allows(contained)
}

// mayCarryOthers reports whether a contained resource may carry others, which FHIR forbids (R4 references.html#contained) and
// which are not judged. A resource of a type that the site has closed cannot be judged either, so it is treated as a carrier.
func (c patientRecord) mayCarryOthers(contained resource.Resource) bool {
	_, nested := contained.Member("contained")
	_, hasSecurityContext := contained.Member("securityContext")
	switch {
	case nested, hasSecurityContext, contained.Type == "Bundle", contained.Type == "Parameters":
		return true
	case c.rules.UsesSecurityContext(contained.Type):
		return false
	}
	return c.rules.MayNeedLookups(contained.Type)
}

// namesNoOtherPatient reports whether a contained resource refers to no other patient, neither by the references of compartment
// membership nor by the search parameter patient, which types outside of compartments may also have. A reference to a contained
// Patient is treated as a reference to another patient.
func (c patientRecord) namesNoOtherPatient(contained, container resource.Resource) bool {
	if contained.Type == "Patient" {
		return true
	}
	for id := range compartment.Patients(contained) {
		if id != c.patient {
			return false
		}
	}
	for id := range compartment.ParameterPatients(contained, "patient") {
		if id != c.patient {
			return false
		}
	}
	return !compartment.MayReferenceContained(contained, container)
}

func matches(parameters searchparam.Set, p smart.Parameter, res resource.Resource) bool {
	parameter, ok := parameters.Lookup(res.Type, p.Name)
	if !ok {
		return false
	}
	ok, err := parameter.Matches(res, p.Value)
	return ok && err == nil
}

// maxDependencies is the maximum number of dependencies per resource.
const maxDependencies = 20

// Rules for reading a resource: see [Rule].judgeRead.

func (c patientRecord) judgeForEveryone(resource.Resource) Verdict { return coveredVerdict }

func (c patientRecord) judgeUnassigned(res resource.Resource) Verdict {
	own := smart.Parameter{Name: "patient", Value: "Patient/" + c.patient}
	return coveredIf(matches(searchparam.Set{}, own, res) || !NamesPatient(res)) // as defined by R4, regardless of a site's definition
}

func (c patientRecord) judgeSecurityContext(res resource.Resource) Verdict {
	v, _ := c.judgeReferences(res, "securityContext")
	return v
}

// judgeSubjects judges a resource by all patients it refers to. A resource that also refers to another patient is not covered,
// because it would reveal both.
func (c patientRecord) judgeSubjects(res resource.Resource) Verdict {
	return c.judgeAllSubjects(res, false)
}

func (c patientRecord) judgePatientOnly(res resource.Resource) Verdict {
	return c.judgeCompartment(res).and(c.namesOnlyPatient(res))
}

func (c patientRecord) judgePatientParameter(res resource.Resource) Verdict {
	return coveredIf(hasOnlyPatient(res, c.patient))
}

// judgeCompartment judges by R4's compartment. A single reference to the patient suffices, unless another reference is to a
// contained Patient, who has no record on this server: the owner of the resource is then unknown.
func (c patientRecord) judgeCompartment(res resource.Resource) Verdict {
	return coveredIf(compartment.IsInPatient(res, c.patient) && !compartment.MayReferenceContained(res, res))
}

// Rules for writing a resource that the client may read: see [Rule].judgeWrite.

func (c patientRecord) judgeWriteAsRead(_ resource.Resource, read Verdict) Verdict { return read }

// judgeWriteAssigned requires that a resource belongs to this patient alone.
func (c patientRecord) judgeWriteAssigned(res resource.Resource, read Verdict) Verdict {
	return read.and(NamesPatient(res) && (!isInPatientCompartment(res.Type) || c.namesOnlyPatient(res)))
}

// requirePatientOnly requires for a resource with dependencies that none of these is shared with other patients.
func (c patientRecord) requirePatientOnly(_ resource.Resource, read Verdict) Verdict {
	return read.and(!slices.ContainsFunc(read.Dependencies, func(of interaction.Reference) bool { return !c.rules.IsPatientOnly(of.Type) }))
}

func (c patientRecord) judgeWriteSubjects(res resource.Resource, _ Verdict) Verdict {
	return c.requirePatientOnly(res, c.judgeAllSubjects(res, true))
}

func (c patientRecord) requireSinglePatient(res resource.Resource, read Verdict) Verdict {
	return read.and(c.namesOnlyPatient(res))
}

func (c patientRecord) judgeAllSubjects(res resource.Resource, isWrite bool) Verdict {
	switch res.Type {
	case "Provenance":
		return c.judgeTargets(res)
	case "Bundle":
		return c.judgeBundle(res, isWrite)
	}
	v := c.judgeCompartment(res)
	if isWrite {
		return c.requireSinglePatient(res, v)
	}
	return v
}

// judgeTargets judges a Provenance. At least one target must belong to the patient, because otherwise no search would find the
// Provenance.
func (c patientRecord) judgeTargets(res resource.Resource) Verdict {
	v, namesPatient := c.judgeReferences(res, "target")
	v.RequiresPatientOwned = v.Covered && !namesPatient
	return v.and(namesPatient || slices.ContainsFunc(v.Dependencies, func(of interaction.Reference) bool { return !c.rules.IsForAllPatients(of.Type) }))
}

// namesOnlyPatient reports whether a resource's membership parameters refer to the patient and to no other.
func (c patientRecord) namesOnlyPatient(res resource.Resource) bool {
	matching := 0
	for id := range compartment.Patients(res) {
		if id != c.patient {
			return false
		}
		matching++
	}
	return matching > 0
}

// NamesPatient reports whether a resource outside of compartments refers to a patient; true for types without the parameter
// patient.
func NamesPatient(res resource.Resource) bool {
	parameter, _ := searchparam.Lookup(res.Type, "patient")
	for _, path := range parameter.Paths {
		path.Target = ""
		for range res.Values(path) {
			return true
		}
	}
	return len(parameter.Paths) == 0
}

// hasOnlyPatient reports whether a resource's search parameter patient refers to the patient and to no other.
func hasOnlyPatient(res resource.Resource, patient string) bool {
	parameter, _ := searchparam.Lookup(res.Type, "patient")
	namesPatient := false
	for _, path := range parameter.Paths {
		path.Target = ""
		for value := range res.Values(path) {
			to, _, ok := res.ReferenceTarget(value)
			if !ok || to.Type != "Patient" || to.Base != "" || to.ID != patient {
				return false
			}
			namesPatient = true
		}
	}
	return namesPatient
}

// judgeReferences judges a resource by the references in one element. The scopes must cover all referenced resources. The
// Patient itself is looked up only if a constraint applies to it.
func (c patientRecord) judgeReferences(res resource.Resource, element string) (v Verdict, namesPatient bool) {
	v = Verdict{Covered: true, RequiredPermissions: c.permissions}
	n := 0
	for value := range res.Values(resource.Path{Elements: []string{element}}) {
		to, _, ok := res.ReferenceTarget(value)
		if n++; n > maxDependencies || !ok || to.Type == "" || to.Base != "" {
			return notCovered, false
		}
		some, all := c.scopeCoverage(to.Type)
		isPatient := to.Type == "Patient" && to.ID == c.patient
		if !some {
			return notCovered, false
		}
		if namesPatient = namesPatient || isPatient; !isPatient || !all {
			v.Dependencies = append(v.Dependencies, interaction.Reference{Type: to.Type, ID: to.ID})
		}
	}
	return v.and(n > 0), namesPatient
}

// MayBeAttachment reports whether a Binary can belong to the patient because a document refers to it: it has no
// securityContext, and a scope for the patient permits reading it.
func (r *Rights) MayBeAttachment(res resource.Resource, patient string) bool {
	if _, hasSecurityContext := res.Member("securityContext"); hasSecurityContext || !r.TypeRules.UsesSecurityContext(res.Type) {
		return false
	}
	return slices.ContainsFunc(r.GrantsFor(res.Type, smart.Read), func(g Grant) bool { return g.Patient == patient && r.selects(&g, res) })
}

// AttachmentURLs returns the URLs of the attachments of a DocumentReference.
func AttachmentURLs(res resource.Resource) []string {
	var all []string
	for value := range res.Values(resource.Path{Elements: []string{"content", "attachment", "url"}}) {
		all = append(all, resource.Text(value))
	}
	return all
}

// ReferencesOnlyPatient reports whether a resource's references of compartment membership refer to the patient and to no other.
func ReferencesOnlyPatient(res resource.Resource, patient string) bool {
	return patientRecord{patient: patient}.namesOnlyPatient(res)
}

// isInPatientCompartment reports whether resources of a type are in the compartments of patients.
func isInPatientCompartment(resourceType string) bool {
	_, ok := compartment.PatientParameters(resourceType)
	return ok
}

// maxEntries is the maximum number of entries of a stored Bundle that can be judged.
const maxEntries = 500

// bundleJudge judges a stored Bundle by its entries.
type bundleJudge struct {
	patientRecord
	bundle          resource.Resource
	isWrite         bool // a client writes the Bundle, so its entries may not refer to another patient
	hasPatientEntry bool // an entry belongs to the patient
	dependencies    []interaction.Reference
	includedEntries map[interaction.Reference]bool
}

// judgeBundle judges a document or collection by its entries. Each entry must be covered by the scopes and must belong to the
// patient or be readable for every patient; at least one must belong to the patient. Bundles are rejected if an entry is a
// Bundle or has no resource. A document begins with a Composition of the patient (R4 documents.html). Bundles of other types
// are requests and responses, which reveal more than their resources.
func (c patientRecord) judgeBundle(bundle resource.Resource, isWrite bool) Verdict {
	d := bundleJudge{patientRecord: c, bundle: bundle, isWrite: isWrite, includedEntries: map[interaction.Reference]bool{}}
	if kind := d.bundleType(); kind != "document" && kind != "collection" {
		return notCovered
	}
	n := 0
	for entry := range bundle.Values(resource.Path{Elements: []string{"entry"}}) {
		if n++; n > maxEntries || !d.addEntry(entry, n == 1) {
			return notCovered
		}
	}
	if !d.hasPatientEntry {
		return notCovered
	}
	v := Verdict{Covered: true, RequiredPermissions: c.permissions}
	for _, of := range d.dependencies {
		if !d.includedEntries[of] {
			v.Dependencies = append(v.Dependencies, of)
		}
	}
	if len(v.Dependencies) > maxDependencies {
		return notCovered
	}
	return v
}

func (d *bundleJudge) addEntry(entry []byte, first bool) bool {
	text, ok := resource.Field(entry, "resource")
	if !ok || isRequestOrResponse(entry) {
		return false
	}
	res, err := d.bundle.ParsePart(text)
	if err != nil || !d.allowsAllContained(res) || !d.allows(res) {
		return false
	}
	if first && d.bundleType() == "document" && res.Type != "Composition" {
		return false
	}
	return d.rules.IsForAllPatients(res.Type) || d.addPatientEntry(entry, res)
}

// addPatientEntry judges an entry that must belong to the patient.
func (d *bundleJudge) addPatientEntry(entry []byte, res resource.Resource) bool {
	isLocal, ok := d.isLocalCopy(entry, res)
	if !ok || res.Type == "Bundle" || res.Type == "Patient" && !isLocal || d.isWrite && !d.namesNoDifferentPatient(res) {
		return false
	}
	v := d.judgeRead(res)
	d.hasPatientEntry = d.hasPatientEntry || v.Covered && compartment.IsInPatient(res, d.patient)
	d.dependencies = append(d.dependencies, v.Dependencies...)
	d.includedEntries[interaction.Reference{Type: res.Type, ID: res.ID}] = isLocal
	return v.Covered
}

func (d *bundleJudge) bundleType() string {
	kind, _ := d.bundle.Member("type")
	return resource.Text(kind)
}

// isRequestOrResponse reports whether a Bundle entry has the element search, request or response.
func isRequestOrResponse(entry []byte) bool {
	return slices.ContainsFunc([]string{"search", "request", "response"}, func(name string) bool {
		_, ok := resource.Field(entry, name)
		return ok
	})
}

// namesNoDifferentPatient reports whether the membership parameters of an entry refer to no other patient.
func (d *bundleJudge) namesNoDifferentPatient(res resource.Resource) bool {
	for id := range compartment.Patients(res) {
		if id != d.patient {
			return false
		}
	}
	return true
}

// isLocalCopy reports whether the entry's fullUrl identifies the resource of this server with the same type and id. ok is also
// true for a URN, which identifies a resource on no server. It is false for a URL of another server, to which the entry's
// relative references would refer (R4 bundle.html#references).
func (d *bundleJudge) isLocalCopy(entry []byte, res resource.Resource) (isLocal, ok bool) {
	value, hasFullURL := resource.Field(entry, "fullUrl")
	if !hasFullURL {
		return res.ID != "", true
	}
	fullURL := resource.Text(value)
	if strings.HasPrefix(fullURL, "urn:") {
		return false, true
	}
	to, ok := d.bundle.ParseReference(fullURL)
	isLocal = ok && to.Base == "" && to.Type == res.Type && to.ID == res.ID
	return isLocal, isLocal
}
