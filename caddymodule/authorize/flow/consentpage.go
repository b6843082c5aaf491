package flow

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/consent"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// consentScript returns the name of the page's script, or "" if no item has parts.
func consentScript(groups []page.ConsentGroup) string {
	hasParts := func(item page.ConsentItem) bool { return len(item.Parts) > 0 }
	if slices.ContainsFunc(groups, func(g page.ConsentGroup) bool { return slices.ContainsFunc(g.Items, hasParts) }) {
		return "consent"
	}
	return ""
}

// consentContent is the content of a consent page for a person.
type consentContent struct {
	user          *people.User
	previous      *consent.Approval // previous approval if still valid, or nil
	submitted     oauth2.Parameters // contradictory answer to correct, or nil
	offlineAccess offlineAccessChoice
}

// consentGroup identifies a group on the consent page. The constants are in page order.
type consentGroup int

const (
	patientRecordsGroup consentGroup = iota
	userRecordsGroup
	profileGroup
	otherItemsGroup
	offlineAccessGroup
	consentGroupCount
)

func groupOf(item string) consentGroup {
	scope, isResource := smart.ParseResourceScope(item)
	switch {
	case isResource && scope.Level == "patient":
		return patientRecordsGroup
	case isResource:
		return userRecordsGroup
	case item == client.OfflineAccess, item == client.OnlineAccess:
		return offlineAccessGroup
	case strings.HasPrefix(item, claimItemPrefix), len(people.ClaimsOfScope([]string{item})) > 0:
		return profileGroup
	}
	return otherItemsGroup
}

// groups returns the items that can be unticked, with health records separate from personal data.
func (o *consentContent) groups(items []string, patient page.ConsentPatient) (shown []page.ConsentGroup) {
	var groups [consentGroupCount][]page.ConsentItem
	for _, item := range items {
		if !isRequired(item) {
			g := groupOf(item)
			groups[g] = append(groups[g], o.item(item))
		}
	}
	legends := [consentGroupCount]*page.Text{
		recordsHeading(patient), page.T("Access health records of all patients you can see"), page.T("See information about you"),
		page.T("Other permissions"), page.T("How long access lasts"),
	}
	for g, items := range groups {
		if len(items) > 0 {
			shown = append(shown, page.ConsentGroup{Legend: legends[g], Items: items})
		}
	}
	return shown
}

// recordsHeading returns the heading for patient-level scopes, with the patient's name.
func recordsHeading(p page.ConsentPatient) *page.Text {
	switch {
	case p.Name != "":
		return page.T("Access health records of %s", p.Name)
	case p.ID != "":
		return page.T("Access health records of the patient with ID %s", p.ID)
	}
	return page.T("Access your health records")
}

// item returns an item's checkbox and the checkboxes for its parts.
func (o *consentContent) item(item string) page.ConsentItem {
	choice := consent.NewChoice(item)
	box := o.renderer(&choice)
	shown := box.render(&choice, Describe(item, o.user))
	if scope, ok := smart.ParseResourceScope(item); ok {
		shown.Text, shown.Detail = describeData(scope), describePermission(scope.Permission)
	}
	if read, write, isSplit := choice.Permissions(); isSplit {
		scope, _ := smart.ParseResourceScope(item)
		shown.Permissions = []page.ConsentItem{
			{Name: itemFieldPrefix + read, Text: describePermission(scope.Permission & consent.ReadPermission), Ticked: !shown.Ticked || box.isTicked(read)},
			{Name: itemFieldPrefix + write, Text: describePermission(scope.Permission & consent.WritePermission), Ticked: !shown.Ticked || box.isTicked(write)},
		}
	}
	shown.PartlyTicked = shown.Ticked && box.hasUntickedPart(&choice)
	if item == client.OfflineAccess {
		shown.Times = o.offlineAccess.pageOptions(o.submitted.Get(offlineAccessField))
	}
	return shown
}

// renderer returns the renderer of an item's checkboxes. They show the submitted answer or else the previous approval. Without
// both, all checkboxes are ticked.
func (o *consentContent) renderer(choice *consent.Choice) choiceRenderer {
	if o.submitted != nil {
		return choiceRenderer{isTickedIn(o.submitted)}
	}
	names, wasAsked := o.previous.TickedNames(choice)
	return choiceRenderer{func(name string) bool { return !wasAsked || names[name] }}
}

// isTickedIn returns a function that reports whether a submitted form has the choice with a name.
func isTickedIn(p oauth2.Parameters) func(name string) bool {
	return func(name string) bool { return p.Get(itemFieldPrefix+name) != "" }
}

// choiceRenderer renders choices with their initial ticks.
type choiceRenderer struct {
	isTicked func(name string) bool
}

// render returns the checkbox of a choice. The parts of an unticked choice are ticked, so that ticking it allows all of it.
func (b choiceRenderer) render(choice *consent.Choice, text *page.Text) page.ConsentItem {
	item := page.ConsentItem{Name: itemFieldPrefix + choice.Name, Text: text, Ticked: b.isTicked(choice.Name)}
	if !item.Ticked {
		b.isTicked = func(string) bool { return true }
	}
	for i := range choice.Parts {
		part := &choice.Parts[i]
		item.Parts = append(item.Parts, b.render(part, partTexts[part.Kind()]))
	}
	return item
}

// hasUntickedPart reports whether any part of an item is unticked.
func (b choiceRenderer) hasUntickedPart(choice *consent.Choice) bool {
	read, write, isSplit := choice.Permissions()
	if isSplit && !(b.isTicked(read) && b.isTicked(write)) {
		return true
	}
	for i := range choice.Parts {
		if part := &choice.Parts[i]; !b.isTicked(part.Name) || b.hasUntickedPart(part) {
			return true
		}
	}
	return false
}

var scopeTexts = map[string]*page.Text{
	"openid":           page.T("Recognize you when you sign in"),
	"profile":          page.T("Your name and profile"),
	"email":            page.T("Your email address"),
	"phone":            page.T("Your phone number"),
	"address":          page.T("Your postal address"),
	"groups":           page.T("Which groups you belong to"),
	"fhirUser":         page.T("Who you are in the health record"),
	"offline_access":   page.T("Keep access when you’re not using the app"),
	"online_access":    page.T("Keep access while you’re signed in"),
	"launch":           page.T("See what was open when you started the app"),
	"launch/patient":   page.T("See which patient you chose"),
	"launch/encounter": page.T("See which visit you chose"),
}

var claimTexts = map[string]*page.Text{
	"name":                  page.T("Your name"),
	"given_name":            page.T("Your given name"),
	"middle_name":           page.T("Your middle name"),
	"family_name":           page.T("Your family name"),
	"nickname":              page.T("Your nickname"),
	"preferred_username":    page.T("Your username"),
	"profile":               page.T("Your profile page"),
	"picture":               page.T("Your profile picture"),
	"website":               page.T("Your website"),
	"gender":                page.T("Your gender"),
	"birthdate":             page.T("Your date of birth"),
	"zoneinfo":              page.T("Your time zone"),
	"locale":                page.T("Your language"),
	"updated_at":            page.T("When your profile was last changed"),
	"email":                 page.T("Your email address"),
	"email_verified":        page.T("Whether your email address is verified"),
	"phone_number":          page.T("Your phone number"),
	"phone_number_verified": page.T("Whether your phone number is verified"),
	"address":               page.T("Your postal address"),
	"groups":                page.T("Which groups you belong to"),
	"fhirUser":              page.T("Who you are in the health record"),
}

var permissionWords = []struct {
	is   smart.Permission
	word *page.Text
}{
	{smart.Read, page.T("read")}, {smart.Search, page.T("search")}, {smart.Create, page.T("create")},
	{smart.Update, page.T("change")}, {smart.Delete, page.T("delete")},
}

// Describe describes an item of a consent in plain words, starting in lower case.
func Describe(item string, user *people.User) *page.Text {
	if claim, ok := strings.CutPrefix(item, claimItemPrefix); ok {
		return cmp.Or(claimTexts[claim], page.T("your %s", strings.ReplaceAll(claim, "_", " ")))
	}
	if text := scopeTexts[item]; text != nil {
		return text
	}
	if scope, ok := smart.ParseResourceScope(item); ok {
		return describeResource(scope, user)
	}
	return page.T("“%s”", item)
}

// describeResource describes a resource scope. If the user is a patient, patient scopes are described as their own records.
func describeResource(scope smart.ResourceScope, user *people.User) *page.Text {
	data, verbs := describeData(scope), describePermission(scope.Permission)
	switch {
	case scope.Level == "patient" && strings.HasPrefix(user.FHIRUser, "Patient/"):
		return page.T("%s your %s", verbs, data)
	case scope.Level == "patient":
		return page.T("%s the patient’s %s", verbs, data)
	}
	return page.T("%s %s of all patients you can see", verbs, data)
}

// describeData describes the data that a resource scope covers.
func describeData(scope smart.ResourceScope) *page.Text {
	if text := partTexts[consent.CategoryOf(scope)]; text != nil {
		return text
	}
	text := partTexts[scope.Type]
	if text == nil {
		text = page.T("records of type %s", splitTypeName(scope.Type))
	}
	if scope.Query != "" {
		text = page.T("%s (only %s)", text, strings.ReplaceAll(scope.Query, "&", ", "))
	}
	return text
}

// describePermission describes a permission, e.g. "read and search".
func describePermission(p smart.Permission) *page.Text {
	var words []*page.Text
	for _, v := range permissionWords {
		if p&v.is != 0 {
			words = append(words, v.word)
		}
	}
	return page.JoinWithAnd(words...)
}

// splitTypeName inserts spaces between the words of a resource type.
func splitTypeName(name string) string {
	var b strings.Builder
	for i, r := range name {
		if i > 0 && unicode.IsUpper(r) {
			b.WriteByte(' ')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// partTexts describes resource types, groups of types defined by [consent.Choice], and categories.
var partTexts = map[string]*page.Text{
	smart.AnyType:           page.T("health records of all kinds"),
	"AllergyIntolerance":    page.T("allergies"),
	"Appointment":           page.T("appointments"),
	"CarePlan":              page.T("care plans"),
	"CareTeam":              page.T("care teams"),
	"Condition":             page.T("conditions and diagnoses"),
	"Coverage":              page.T("insurance"),
	"Device":                page.T("devices and implants"),
	"DiagnosticReport":      page.T("diagnostic reports"),
	"DocumentReference":     page.T("documents"),
	"Encounter":             page.T("visits and hospital stays"),
	"FamilyMemberHistory":   page.T("family history"),
	"Goal":                  page.T("goals"),
	"Immunization":          page.T("immunizations"),
	"Location":              page.T("places of care"),
	"Medication":            page.T("medicines"),
	"MedicationDispense":    page.T("dispensed medicines"),
	"MedicationRequest":     page.T("prescriptions"),
	"Observation":           page.T("observations, such as lab results and vital signs"),
	"Organization":          page.T("hospitals, practices and other organizations"),
	"Patient":               page.T("personal details, such as name and date of birth"),
	"Practitioner":          page.T("doctors, nurses and other professionals"),
	"PractitionerRole":      page.T("workplaces and roles of professionals"),
	"Procedure":             page.T("procedures"),
	"Provenance":            page.T("record history (who recorded what and when)"),
	"QuestionnaireResponse": page.T("questionnaire answers"),
	"ServiceRequest":        page.T("orders and referrals"),
	"Specimen":              page.T("specimens"),

	"documents":  page.T("documents"),
	"insurance":  page.T("insurance and bills"),
	"medicines":  page.T("medicines and prescriptions"),
	"personal":   page.T("personal details, such as name and date of birth"),
	"plans":      page.T("care plans, goals and care teams"),
	"procedures": page.T("procedures, orders and referrals"),
	"providers":  page.T("professionals and places of care"),
	"reports":    page.T("diagnostic reports, images and specimens"),
	"visits":     page.T("visits, hospital stays and appointments"),

	"clinical-test":       page.T("clinical test results"),
	"encounter-diagnosis": page.T("visit diagnoses"),
	"health-concern":      page.T("health concerns"),
	"laboratory":          page.T("lab results"),
	"problem-list-item":   page.T("problem list"),
	"sdoh":                page.T("living conditions, such as housing and food"),
	"social-history":      page.T("habits and social history, such as smoking"),
	"survey":              page.T("survey and assessment results"),
	"vital-signs":         page.T("vital signs, such as blood pressure"),
}

// offlineAccessField is the form field for the lifetime of offline_access in days. Empty means the configured maximum.
const offlineAccessField = "days"

const day = 24 * time.Hour

// offlineAccessChoice offers lifetimes for offline_access.
type offlineAccessChoice struct {
	max time.Duration // configured maximum
}

// days returns the selectable lifetimes in days below the maximum.
func (l offlineAccessChoice) days() (days []int) {
	for _, n := range []int{90, 30, 1} {
		if time.Duration(n)*day < l.max {
			days = append(days, n)
		}
	}
	return days
}

// parseExpiry returns the expiry for the selected lifetime. The zero time means the configured maximum.
func (l offlineAccessChoice) parseExpiry(chosen string) (time.Time, error) {
	if chosen == "" {
		return time.Time{}, nil
	}
	for _, n := range l.days() {
		if chosen == strconv.Itoa(n) {
			return time.Now().Add(time.Duration(n) * day).UTC(), nil
		}
	}
	return time.Time{}, errMissingDecision
}

// pageOptions returns the options for the page, longest first, with the chosen one selected.
func (l offlineAccessChoice) pageOptions(chosen string) []page.ConsentTime {
	times := []page.ConsentTime{{Text: page.T("Until you end access, at most %s", describeDuration(l.max)), Ticked: chosen == ""}}
	for _, n := range l.days() {
		value := strconv.Itoa(n)
		times = append(times, page.ConsentTime{Value: value, Text: describeDuration(time.Duration(n) * day), Ticked: chosen == value})
	}
	return times
}

// describeDuration describes a duration in days, rounded down, or in hours, rounded up.
func describeDuration(d time.Duration) *page.Text {
	if d >= day {
		return page.Plural("%d day", "%d days", int(d/day))
	}
	return page.Plural("%d hour", "%d hours", int((d+time.Hour-1)/time.Hour))
}
