package flow

import (
	"cmp"
	"strings"
	"unicode"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/consent"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

var scopeWords = map[string]*page.Text{
	"openid":           page.T("Know that it is you who signs in"),
	"profile":          page.T("Your name and the rest of your profile"),
	"email":            page.T("Your e-mail address"),
	"phone":            page.T("Your telephone number"),
	"address":          page.T("Your postal address"),
	"groups":           page.T("Which groups you belong to"),
	"fhirUser":         page.T("Which entry of the health records is you"),
	"offline_access":   page.T("Keep this access while you are not using it"),
	"online_access":    page.T("Keep this access for as long as you are signed in"),
	"launch":           page.T("Know what you had open when you started it"),
	"launch/patient":   page.T("Know which patient it is about"),
	"launch/encounter": page.T("Know which visit it is about"),
}

var claimWords = map[string]*page.Text{
	"name":                  page.T("Your name"),
	"given_name":            page.T("Your given name"),
	"middle_name":           page.T("Your middle name"),
	"family_name":           page.T("Your family name"),
	"nickname":              page.T("Your nickname"),
	"preferred_username":    page.T("Your user name"),
	"profile":               page.T("Your profile page"),
	"picture":               page.T("Your picture"),
	"website":               page.T("Your website"),
	"gender":                page.T("Your gender"),
	"birthdate":             page.T("Your date of birth"),
	"zoneinfo":              page.T("Your time zone"),
	"locale":                page.T("Your language"),
	"updated_at":            page.T("When your profile was last changed"),
	"email":                 page.T("Your e-mail address"),
	"email_verified":        page.T("Whether your e-mail address was checked"),
	"phone_number":          page.T("Your telephone number"),
	"phone_number_verified": page.T("Whether your telephone number was checked"),
	"address":               page.T("Your postal address"),
	"groups":                page.T("Which groups you belong to"),
	"fhirUser":              page.T("Which entry of the health records is you"),
}

var permissionWords = []struct {
	is   smart.Permission
	word *page.Text
}{
	{smart.Read, page.T("read")}, {smart.Search, page.T("search")}, {smart.Create, page.T("create")},
	{smart.Update, page.T("change")}, {smart.Delete, page.T("delete")},
}

// Describe describes an item of a consent in plain words, to begin with a capital letter.
func Describe(item string, user *people.User) *page.Text {
	if claim, ok := strings.CutPrefix(item, claimItem); ok {
		return cmp.Or(claimWords[claim], page.T("your %s", strings.ReplaceAll(claim, "_", " ")))
	}
	if text := scopeWords[item]; text != nil {
		return text
	}
	if scope, ok := smart.ParseResourceScope(item); ok {
		return describeResource(scope, user)
	}
	return page.T("the permission “%s”", item)
}

// describeResource describes a resource scope, to patients as one for their own records.
func describeResource(scope smart.ResourceScope, user *people.User) *page.Text {
	what, verbs := dataOf(scope), verbs(scope.Permission)
	switch {
	case scope.Level == "patient" && strings.HasPrefix(user.FHIRUser, "Patient/"):
		return page.T("%s your %s", verbs, what)
	case scope.Level == "patient":
		return page.T("%s the patient's %s", verbs, what)
	}
	return page.T("%s %s of everybody you have access to", verbs, what)
}

// dataOf describes the kind of data that a resource scope is for.
func dataOf(scope smart.ResourceScope) *page.Text {
	if text := partWords[consent.CategoryOf(scope)]; text != nil {
		return text
	}
	text := partWords[scope.Type]
	if text == nil {
		text = page.T("records of type %s", spaced(scope.Type))
	}
	if scope.Query != "" {
		text = page.T("%s (only %s)", text, strings.ReplaceAll(scope.Query, "&", ", "))
	}
	return text
}

// verbs describes a permission, such as "read and search".
func verbs(p smart.Permission) *page.Text {
	var words []*page.Text
	for _, v := range permissionWords {
		if p&v.is != 0 {
			words = append(words, v.word)
		}
	}
	return page.And(words...)
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
