package access

import (
	"maps"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/compartment"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// Rule says which resources of a type a grant that is bound to a patient is about, where the Patient compartment of
// FHIR R4 does not say so, or says more than a patient may see. It has a field for each question that the guard asks.
// What a rule leaves out is refused: an empty one allows nothing.
type Rule struct {
	name string
	// fits reports whether a type can have the rule. Nil: none can.
	fits func(resourceType string) bool
	// permits are the permissions that a bound grant may have on the type.
	permits smart.Permission
	// covers judges a resource that is read or found. Nil: none is covered.
	covers func(c record, res resource.Resource) Verdict
	// writes judges a covered resource that a client writes, before and after; read is what covers has said of it. Nil:
	// none is written.
	writes func(c record, res resource.Resource, read Verdict) Verdict
	// confine are searches that together find what is covered, and as little else as the FHIR server can. Nil: none is
	// made.
	confine func(q Search) []Confinement
	// counted says that these searches find nothing but what is covered, so that the FHIR server's total is right.
	counted bool
	// own says that what is covered is the patient's own, and nobody else's.
	own bool
	// everyones says that all resources of the type are covered for every patient, so that they may come along with a
	// record that names them.
	everyones bool
	// named reports whether records may refer to a resource of the type that nobody has looked at. Nil: none may.
	named func(resourceType string) bool
	// byItself reports whether a resource tells by itself whether it is covered. Nil: others have to be asked for.
	byItself func(resourceType string) bool
}

// The rules. A new one is a row here, its name in the list of those that a site can give, and rows in the test of them. What
// it covers is in verdict.go, and the searches are below.
var (
	// everyone: all may be read and searched, and none changed: they describe the world that records refer to.
	everyone = &Rule{
		name: "everyone", fits: anyType, permits: smart.Read | smart.Search, covers: record.all,
		confine: unconfined, counted: true, everyones: true, named: anyType, byItself: anyType,
	}
	// unassigned: the patient's own, and those of no patient. Only the patient's own may be changed.
	unassigned = &Rule{
		name: "unassigned", fits: anyType, permits: allPermissions, covers: record.ownOrUnassigned, writes: record.assigned,
		confine: byPatientOrNone, counted: true, byItself: anyType,
	}
	// securityContext: by Binary.securityContext: the patient, or a resource that the grant covers.
	securityContext = &Rule{
		name: "security_context", fits: anyType, permits: allPermissions, covers: record.inContext, writes: record.ofOwn,
		confine: byCompartment, own: true,
	}
	// about: all that the resource is about is the patient or is covered: each Provenance.target, or each entry of a
	// document or collection. Of other types: the patient's compartment.
	about = &Rule{
		name: "about", fits: anyType, permits: allPermissions, covers: record.about, writes: record.aboutOwn,
		confine: byCompartment, own: true, byItself: isAboutItself,
	}
	// alone: in the compartment, and of no other patient: a Group of several names the others.
	alone = &Rule{
		name: "alone", fits: anyType, permits: allPermissions, covers: record.alone, writes: record.asRead,
		confine: byCompartment, own: true, byItself: anyType,
	}
	// ownPatient: by the type's search parameter patient: it names the patient, and no other.
	ownPatient = &Rule{
		name: "patient", fits: hasPatient, permits: allPermissions, covers: record.ofPatient, writes: record.asRead,
		confine: byPatient, own: true, byItself: anyType,
	}
	// closed: nothing.
	closed = &Rule{name: "closed", fits: anyType}
	// compartmental is the rule of types without one: R4's Patient compartment. What is in no compartment is nobody's: a
	// definition, to which records may refer.
	compartmental = &Rule{
		fits: isMember, permits: allPermissions, covers: record.inCompartment, writes: record.namingNoOther,
		confine: byCompartment, counted: true, own: true, named: isNoMember, byItself: anyType,
	}
)

// rules are those that a site can give to types.
var rules = []*Rule{everyone, unassigned, securityContext, about, alone, ownPatient, closed}

const allPermissions = smart.Create | smart.Read | smart.Update | smart.Delete | smart.Search

func anyType(string) bool { return true }

func isNoMember(resourceType string) bool { return !isMember(resourceType) }

// hasPatient reports whether a type has the search parameter patient.
func hasPatient(resourceType string) bool {
	p, ok := searchparam.Lookup(resourceType, "patient")
	return ok && p.Kind == searchparam.Reference && len(p.Paths) > 0
}

// isAboutItself reports whether resources of a type are judged by their own compartment under the rule about.
func isAboutItself(resourceType string) bool {
	return resourceType != "Provenance" && resourceType != "Bundle"
}

// RuleNames are the names of the rules that a site can give to types.
func RuleNames() []string {
	names := make([]string, 0, len(rules))
	for _, r := range rules {
		names = append(names, r.name)
	}
	return names
}

// RuleNamed returns the rule with a name; nil if there is none.
func RuleNamed(name string) *Rule {
	if i := slices.IndexFunc(rules, func(r *Rule) bool { return r.name == name }); i >= 0 {
		return rules[i]
	}
	return nil
}

// Fits reports whether a type can have the rule.
func (r *Rule) Fits(resourceType string) bool { return r.fits != nil && r.fits(resourceType) }

// Shared are the types' rules. A type without one is ruled by the Patient compartment; a type that is not in it either
// is closed to bound grants.
type Shared map[string]*Rule

// defaultShared are the rules of types that a site does not set.
var defaultShared = Shared{
	"Organization": everyone, "Practitioner": everyone, "PractitionerRole": everyone, "Location": everyone,
	"HealthcareService": everyone, "Endpoint": everyone, "Medication": everyone, "Substance": everyone,
	"Questionnaire": everyone,
	"Device":        unassigned,
	"Binary":        securityContext,
	"Provenance":    about,
	"Bundle":        about,
	"Group":         alone,
}

// NewShared returns the default rules, changed by a site's own.
func NewShared(own Shared) Shared {
	s := maps.Clone(defaultShared)
	maps.Copy(s, own)
	return s
}

// rule is the one of a type; one that is nil allows nothing.
func (s Shared) rule(resourceType string) *Rule {
	r, ok := s[resourceType]
	switch {
	case !ok:
		return compartmental
	case r == nil:
		return closed
	}
	return r
}

// inside reports whether a resource is the patient's, or one that every patient's records need.
func (c record) inside(res resource.Resource) Verdict {
	if r := c.rules.rule(res.Type); r.covers != nil {
		return r.covers(c, res)
	}
	return outside
}

// written reports whether a client may write a resource that is inside.
func (c record) written(res resource.Resource, read Verdict) Verdict {
	if r := c.rules.rule(res.Type); r.writes != nil && read.Covered {
		return r.writes(c, res, read)
	}
	return outside
}

// Confine returns searches that together find what a bound grant covers of a type. None: nothing is searched for.
func (s Shared) Confine(q Search) []Confinement {
	r := s.rule(q.Type)
	if r.confine == nil {
		return nil
	}
	all := r.confine(q)
	for i := range all {
		all[i].IsOwn = r.own
	}
	return all
}

// IsCounted reports whether the searches of [Shared.Confine] find nothing but what is covered, so that the number of
// matches tells of nothing else.
func (s Shared) IsCounted(resourceType string) bool { return s.rule(resourceType).counted }

// IsOwn reports whether all that a bound grant covers of a type is the patient's own, and nobody else's.
func (s Shared) IsOwn(resourceType string) bool { return s.rule(resourceType).own }

// isOwn reports whether a covered resource is the patient's own: of an unassigned one that depends on whether it names a
// patient.
func (s Shared) isOwn(res resource.Resource) bool {
	return s.IsOwn(res.Type) || !s.IsEveryones(res.Type) && OfPatients(res)
}

// IsEveryones reports whether all resources of a type are covered for every patient.
func (s Shared) IsEveryones(resourceType string) bool { return s.rule(resourceType).everyones }

// IsNamed reports whether a patient's records may refer to a resource of a type that nobody has looked at.
func (s Shared) IsNamed(resourceType string) bool {
	r := s.rule(resourceType)
	return r.named != nil && r.named(resourceType)
}

// IsSecured reports whether resources of a type are judged by their securityContext.
func (s Shared) IsSecured(resourceType string) bool { return s.rule(resourceType) == securityContext }

// Depends reports whether a resource of a type may be the patient's because others are, about which one must be asked.
func (s Shared) Depends(resourceType string) bool {
	r := s.rule(resourceType)
	return r.byItself == nil || !r.byItself(resourceType)
}

// Search is a search of a client's for a type, under a grant that is bound to a patient.
type Search struct {
	// Type is the resource type.
	Type string
	// Patient is the id of the grant's patient.
	Patient string
	// Asked are the client's parameters.
	Asked []smart.Parameter
	// InCompartment says that the FHIR server can search in the compartment of a patient.
	InCompartment bool
}

// Confinement is what comes on top of the client's parameters, so that a search finds what a grant covers.
type Confinement struct {
	// InCompartment says that it is a search in the patient's compartment.
	InCompartment bool
	// IsOwn says that all that is covered of the type is the patient's own, and nobody else's.
	IsOwn bool
	// Parameters are further parameters.
	Parameters []smart.Parameter
}

// missingPatient finds what is of no patient.
const missingPatient = "patient:missing"

// by is a confinement by one parameter.
func by(name, value string) Confinement {
	return Confinement{Parameters: []smart.Parameter{{Name: name, Value: value}}}
}

// unconfined are searches that need no confinement.
func unconfined(Search) []Confinement { return []Confinement{{}} }

// byPatient confines by the search parameter patient.
func byPatient(q Search) []Confinement { return []Confinement{by("patient", "Patient/"+q.Patient)} }

// byPatientOrNone confines to what is the patient's or nobody's.
func byPatientOrNone(q Search) []Confinement {
	if slices.ContainsFunc(q.Asked, func(p smart.Parameter) bool {
		return p.Name == "patient" && (p.Value == "Patient/"+q.Patient || p.Value == q.Patient)
	}) {
		return unconfined(q)
	}
	return append(byPatient(q), by(missingPatient, "true"))
}

// byCompartment confines to the patient's compartment: by the FHIR server's own search of it where there is one, else by
// one search for each parameter of membership.
func byCompartment(q Search) []Confinement {
	if q.Type == "Patient" {
		return []Confinement{by("_id", q.Patient)}
	}
	names, ok := compartment.Patient(q.Type)
	switch {
	case !ok:
		return nil
	case slices.ContainsFunc(q.Asked, q.isOf):
		return unconfined(q)
	case q.InCompartment:
		return []Confinement{{InCompartment: true}}
	}
	var all []Confinement
	for _, name := range names {
		all = append(all, by(name, "Patient/"+q.Patient))
	}
	return all
}

// Criteria are search parameters that find a resource only as long as a grant covers it: those of the grant's constraint,
// and of its patient. Empty if there are none, or if they do not find the resource now: a policy may allow what no grant
// covers.
func (r *Rights) Criteria(g Grant, res resource.Resource) []smart.Parameter {
	finds := func(p smart.Parameter) bool { return r.FoundBy(p, res) }
	criteria := slices.Clone(g.Constraint)
	if g.Patient != "" {
		for _, c := range r.Shared.Confine(Search{Type: res.Type, Patient: g.Patient}) {
			if !slices.ContainsFunc(c.Parameters, func(p smart.Parameter) bool { return !finds(p) }) {
				criteria = append(criteria, c.Parameters...)
			}
		}
		if len(criteria) == len(g.Constraint) {
			return nil
		}
	}
	if slices.ContainsFunc(criteria, func(p smart.Parameter) bool { return !finds(p) }) {
		return nil
	}
	return criteria
}

// isOf reports whether all that a parameter of the client's finds is in the compartment of the patient, such as
// patient=Patient/a, so that nothing more need confine the search.
func (q Search) isOf(p smart.Parameter) bool {
	isID := p.Value == q.Patient
	if !isID && p.Value != "Patient/"+q.Patient {
		return false
	}
	name, modifier, _ := strings.Cut(p.Name, ":")
	by, ok := searchparam.Lookup(q.Type, name)
	if !ok || modifier != "" && modifier != "Patient" || !compartment.IsMembership(q.Type, by) {
		return false
	}
	return !isID || modifier != "" || isToPatients(by)
}

// isToPatients reports whether a parameter is about patients alone, so that an id is that of one. R4's elements with the
// name patient are, whatever the parameter's targets.
func isToPatients(by searchparam.Parameter) bool {
	return !slices.ContainsFunc(by.Paths, func(path resource.Path) bool {
		return path.Target != "Patient" && path.Elements[len(path.Elements)-1] != "patient" && !slices.Equal(by.Targets, []string{"Patient"})
	})
}

// Effect is what a FHIR server may do because a resource of a type is stored, beyond storing it. What it sends or asks
// then goes around the scopes of whoever wrote the resource, so the write is judged by it.
type Effect string

const (
	// Inert is nothing: a server reads it when it is asked to, and that request is judged.
	Inert Effect = "inert"
	// Sends is that it sends what a search finds, as the resources change (Subscription).
	Sends Effect = "sends"
	// Asks is that it may be carried out, with the searches that its texts hold (Task, CommunicationRequest).
	Asks Effect = "asks"
	// Steers is that it changes what searches find, where messages go, or what is done at an event.
	Steers Effect = "steers"
	// Carries is that it may be one of those in another form: a Bundle of requests or a message, a topic in a Basic.
	Carries Effect = "carries"
)

// effects are those of R4's types. A type without a row is written by those alone who may read and search everything.
var effects = effectsByType(map[Effect]string{
	Sends:   `Subscription`,
	Asks:    `CommunicationRequest Task`,
	Steers:  `CompartmentDefinition EventDefinition GraphDefinition MessageDefinition OperationDefinition PlanDefinition SearchParameter`,
	Carries: `Basic Bundle`,
	Inert: `
Account ActivityDefinition AdverseEvent AllergyIntolerance Appointment AppointmentResponse AuditEvent Binary
BiologicallyDerivedProduct BodyStructure CapabilityStatement CarePlan CareTeam CatalogEntry ChargeItem ChargeItemDefinition
Claim ClaimResponse ClinicalImpression CodeSystem Communication Composition ConceptMap Condition Consent Contract Coverage
CoverageEligibilityRequest CoverageEligibilityResponse DetectedIssue Device DeviceDefinition DeviceMetric DeviceRequest
DeviceUseStatement DiagnosticReport DocumentManifest DocumentReference EffectEvidenceSynthesis Encounter Endpoint
EnrollmentRequest EnrollmentResponse EpisodeOfCare Evidence EvidenceVariable ExampleScenario ExplanationOfBenefit
FamilyMemberHistory Flag Goal Group GuidanceResponse HealthcareService ImagingStudy Immunization ImmunizationEvaluation
ImmunizationRecommendation ImplementationGuide InsurancePlan Invoice Library Linkage List Location Measure MeasureReport
Media Medication MedicationAdministration MedicationDispense MedicationKnowledge MedicationRequest MedicationStatement
MedicinalProduct MedicinalProductAuthorization MedicinalProductContraindication MedicinalProductIndication
MedicinalProductIngredient MedicinalProductInteraction MedicinalProductManufactured MedicinalProductPackaged
MedicinalProductPharmaceutical MedicinalProductUndesirableEffect MessageHeader MolecularSequence NamingSystem
NutritionOrder Observation ObservationDefinition OperationOutcome Organization OrganizationAffiliation Parameters Patient
PaymentNotice PaymentReconciliation Person Practitioner PractitionerRole Procedure Provenance Questionnaire
QuestionnaireResponse RelatedPerson RequestGroup ResearchDefinition ResearchElementDefinition ResearchStudy ResearchSubject
RiskAssessment RiskEvidenceSynthesis Schedule ServiceRequest Slot Specimen SpecimenDefinition StructureDefinition
StructureMap Substance SubstanceNucleicAcid SubstancePolymer SubstanceProtein SubstanceReferenceInformation
SubstanceSourceMaterial SubstanceSpecification SupplyDelivery SupplyRequest TerminologyCapabilities TestReport TestScript
ValueSet VerificationResult VisionPrescription`,
})

func effectsByType(types map[Effect]string) map[string]Effect {
	byType := map[string]Effect{}
	for effect, names := range types {
		for name := range strings.FieldsSeq(names) {
			byType[name] = effect
		}
	}
	return byType
}

// EffectOf is what a server may do because a resource of the type is stored; empty if that has not been decided.
func EffectOf(resourceType string) Effect { return effects[resourceType] }
