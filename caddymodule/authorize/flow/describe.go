package flow

import (
	"strings"
	"unicode"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

var scopeWords = map[string]string{
	"openid":           "Know that it is you who signs in",
	"profile":          "Your name and the rest of your profile",
	"email":            "Your e-mail address",
	"phone":            "Your telephone number",
	"address":          "Your postal address",
	"groups":           "Which groups you belong to",
	"fhirUser":         "Which entry of the health records is you",
	"offline_access":   "Keep this access while you are not using it",
	"online_access":    "Keep this access for as long as you are signed in",
	"launch":           "Know what you had open when you started it",
	"launch/patient":   "Know which patient it is about",
	"launch/encounter": "Know which visit it is about",
}

var typeWords = map[string]string{
	smart.AnyType:         "health records of every kind",
	"AllergyIntolerance":  "allergies",
	"Appointment":         "appointments",
	"CarePlan":            "care plans",
	"CareTeam":            "care teams",
	"Condition":           "conditions and diagnoses",
	"Coverage":            "insurance",
	"Device":              "devices and implants",
	"DiagnosticReport":    "diagnostic reports",
	"DocumentReference":   "documents",
	"Encounter":           "visits and hospital stays",
	"FamilyMemberHistory": "family history",
	"Goal":                "goals",
	"Immunization":        "immunizations",
	"MedicationRequest":   "prescriptions",
	"Observation":         "observations, such as lab results and vital signs",
	"Patient":             "personal details, such as name and date of birth",
	"Procedure":           "procedures",
}

var permissionWords = []struct {
	is   smart.Permission
	word string
}{
	{smart.Read, "read"}, {smart.Search, "search"}, {smart.Create, "create"}, {smart.Update, "change"}, {smart.Delete, "delete"},
}

// describe describes an item of a consent in plain words.
func describe(item string, user *people.User) string {
	if claim, ok := strings.CutPrefix(item, claimItem); ok {
		return "Your " + strings.ReplaceAll(claim, "_", " ")
	}
	if text := scopeWords[item]; text != "" {
		return text
	}
	if scope, ok := smart.ParseResourceScope(item); ok {
		return describeResource(scope, user)
	}
	return "The permission “" + item + "”"
}

// describeResource describes a resource scope, to patients as one for their own records.
func describeResource(scope smart.ResourceScope, user *people.User) string {
	what := typeWords[scope.Type]
	if what == "" {
		what = "records of type " + spaced(scope.Type)
	}
	switch {
	case scope.Level == "patient" && strings.HasPrefix(user.FHIRUser, "Patient/"):
		what = "your " + what
	case scope.Level == "patient":
		what = "the patient's " + what
	default:
		what += " of everybody you have access to"
	}
	text := verbs(scope.Permission) + " " + what
	if scope.Query != "" {
		text += " (only " + strings.ReplaceAll(scope.Query, "&", ", ") + ")"
	}
	return text
}

// verbs describes a permission, such as "Read and search".
func verbs(p smart.Permission) string {
	var words []string
	for _, v := range permissionWords {
		if p&v.is != 0 {
			words = append(words, v.word)
		}
	}
	last := len(words) - 1
	text := words[last]
	if last > 0 {
		text = strings.Join(words[:last], ", ") + " and " + text
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// spaced separates the words of a type's name.
func spaced(name string) string {
	var b strings.Builder
	for i, r := range name {
		if i > 0 && unicode.IsUpper(r) {
			b.WriteByte(' ')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
