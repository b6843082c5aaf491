package page

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// samples are views of every template, by name.
func samples() map[string]View {
	ways := []SignInWay{{"General Hospital", "/oauth2/login/hospital"}, {"Google", "/oauth2/login/google"}}
	links := AppLinks{"Growth Chart", LogoOf("growth-chart"), "https://chart.example/policy", "https://chart.example/terms"}
	alice := Person{"Alice Adams", "alice@example.org"}
	return map[string]View{
		"signin":       {Data: SignIn{Client: "Growth Chart", Links: links, Local: true, ByEmail: true, Ways: ways}},
		"signin-wrong": {Data: SignIn{Client: "Growth Chart", Username: "alice", Problem: SignInProblem{Wrong: true}, Local: true}},
		"signin-wait":  {Data: SignIn{Client: "Growth Chart", Username: "alice", Problem: SignInProblem{Wait: 30 * time.Second, Down: "Clinic", Busy: time.Second}, Local: true}},
		"secondfactor": {Data: SecondFactor{Client: "Growth Chart", Wrong: true}}, "secondfactor-wait": {Data: SecondFactor{Client: "Growth Chart", Wait: 90 * time.Second}},
		"refused": {Data: Refused{Client: "Growth Chart", Person: alice, Provider: "Clinic", SignsOut: true}}, "refused-page": {Data: Refused{Person: alice, Provider: "Clinic"}},
		"selectaccount": {Data: SelectAccount{Client: "Growth Chart", Person: alice}},
		"consent": {Data: Consent{
			Client: "Growth Chart", Links: links, To: "chart.example", Person: alice, Unknown: true, Patient: ConsentPatient{"ada", "Ada Lovelace", "1815-12-10"},
			Fixed: []*Text{T("Know which patient it is about")}, Groups: []ConsentGroup{
				{T("Your health records"), []ConsentItem{{
					Name: "may patient/Condition.cruds", Text: T("conditions and diagnoses"), Detail: T("read"), Limited: true,
					Permissions: []ConsentItem{{Name: "may patient/Condition.cruds read", Text: T("read"), Ticked: true}},
					Parts:       []ConsentItem{{Name: "may patient/Condition.cruds problem-list-item", Text: T("problem list")}},
				}}},
				{T("How long"), []ConsentItem{{
					Name: "may offline_access", Text: T("Keep this access while you are not using it"), Ticked: true,
					Times: []ConsentTime{{"", T("Until I end it, %s at most", Plural("%d day", "%d days", 90)), true}},
				}}},
			},
		}},
		"consent-id": {Data: Consent{Client: "Growth Chart", Person: alice, Patient: ConsentPatient{ID: "p02"}}},
		"continue":   {Data: Consent{Client: "Growth Chart", To: "localhost:3000", Unknown: true, Patient: ConsentPatient{Name: "Ada Lovelace"}}},
		"signout":    {Data: SignOut{Client: "Growth Chart"}}, "formpost": {Script: "submit", Data: FormPost{Client: "Growth Chart"}},
		"formpost-asks": {Data: FormPost{Client: "Growth Chart", Question: T("Try again, or ask the people who run this site.")}},
		"message":       {Data: Message{T("You are signed out"), T("You can close this page."), "", &Link{"/", T("Go to %s", "General Hospital")}}},
		"message-detail": {Data: Message{Title: T("This link does not work"), Detail: "The client_id is not one that is registered here.",
			Text: T("The app that sent you here made a mistake. Go back to it and try again. If that does not help, tell the people who run it:")}},
		"selectpatient": {Script: "search", Data: SelectPatient{Client: "Growth Chart", Searchable: true, Name: "Smith", More: true, Patients: []Patient{
			{"1", "John Smith", "1970-05-01", "12345", "1 High Street, Springfield", T("male")}, {"2", "Jane Smith", "1972-01-12", "12346", "", T("female")}, {ID: "3"}}}},
		"selectpatient-down": {Data: SelectPatient{Client: "Growth Chart", Problem: ChoiceProblem{Down: true}}},
		"launchpage": {Data: LaunchPage{
			Request: "sealed", Person: alice, Searchable: true, Name: "Smith", More: true, Chosen: "2",
			Apps:     []LaunchApp{{"sandbox-app", "Sandbox App", "fhir.example.org", true}, {"growth-chart", "Growth Chart", "chart.example", false}},
			Patients: []Patient{{"1", "John Smith", "1970-05-01", "12345", "", Gender("male")}, {ID: "2"}}}},
		"launchpage-problem": {Data: LaunchPage{Problem: LaunchProblem{true, true, true, true, true}, Local: true, LocalChosen: true}},
		"sandboxapp":         {Script: "sandboxapp", Data: SandboxApp{"sandbox-app", "https://fhir.example.org/oauth2/sandbox_app", "https://fhir.example.org/fhir/R4", "openid"}},
		"selectencounter": {Data: SelectEncounter{Client: "Growth Chart", Patient: "John Smith", Problem: ChoiceProblem{Unseen: true},
			Encounters: []Encounter{{"1", "Check-up", "2026-05-01", "General Hospital"}, {ID: "2"}}}},
	}
}

// Every page can be shown in every language, with all that it shows.
func TestEveryPageInEveryLanguage(t *testing.T) {
	t.Parallel()
	shown, all := map[string]bool{}, samples()
	maps.Copy(all, accountSamples())
	maps.Copy(all, adminSamples())
	for name, view := range all {
		view.Template, _, _ = strings.Cut(name, "-")
		shown[view.Template] = true
		for _, language := range Languages() {
			view.Locales = language
			r := showing(t, httptest.NewRequest(http.MethodGet, "/", nil), view)
			body := read(t, r)
			if r.StatusCode != http.StatusOK || strings.Contains(body, "%!") || strings.Contains(body, "%s") || strings.Count(body, "<h1>") != 1 ||
				!strings.Contains(body, `<html lang="`+language+`">`) {
				t.Errorf("%s in %s: %s", name, language, body)
			}
		}
	}
	for template := range templateSets()[english] {
		if !shown[template] {
			t.Errorf("no sample of %s", template)
		}
	}
}

// accountSamples are views of the pages of one's own.
func accountSamples() map[string]View {
	alice, ago := Person{"Alice Adams", "alice@example.org"}, Plural("%d day ago", "%d days ago", 3)
	challenge := &Passkey{Options: `{"challenge":"AAAA"}`, Sealed: "sealed"}
	return map[string]View{
		"account-new": {Data: Account{Person: alice, Factors: AccountFactors{Local: true, CanPasskey: true}}},
		"account": {Data: Account{
			Person: alice, Done: T("The app no longer has access."),
			Apps: []AccountApp{{"growth-chart", "Growth Chart", ago, ago, T("It keeps access when you sign out."), []*Text{T("Your e-mail address")}, []AccountRecords{
				{T("Your health records"), ago, "2027-03-01"}, {T("Health records of %s", "Ada Lovelace"), ago, ""}, {T("Health records of the patient with the id %s", "p02"), ago, ""},
			}}, {"other", "Other", ago, nil, T("It has access until you sign out at the latest."), nil, nil}},
			Sessions: []AccountSession{
				{"a", T("%s on %s", "Firefox", "Windows"), ago, "", "192.0.2.1", true}, {"b", T("an unknown browser"), ago, "General Hospital", "", false},
			},
			Factors: AccountFactors{
				Local: true, App: ago, Recovery: 1, Any: true, CanPasskey: true,
				Passkeys: []AccountPasskey{{"a", "Telephone", ago, ago}, {"b", "Key", ago, nil}},
			},
		}},
		"account-configured":   {Data: Account{Person: alice, Factors: AccountFactors{Local: true, Configured: true, Any: true}}},
		"account-provider":     {Data: Account{Person: alice, Factors: AccountFactors{Provider: "General Hospital"}}},
		"account-elsewhere":    {Data: Account{Person: alice}},
		"appsetup":             {Policy: Policy{Images: "data:"}, Data: AppSetup{QR: "data:,", Secret: "ABCD EFGH"}},
		"appsetup-wrong":       {Data: AppSetup{Secret: "ABCD EFGH", Wrong: true, Wait: time.Minute}},
		"passkeysetup":         {Script: "passkey", Data: PasskeySetup{Name: "Firefox", Passkey: challenge, Wrong: true}},
		"recoverycodes":        {Data: RecoveryCodes{Codes: []string{"abcd-efgh-jkmn-pqrs"}, Done: T("Your passkey is set up.")}},
		"signin-account":       {Script: "passkey", Data: SignIn{Local: true, Passkey: challenge, Problem: SignInProblem{Passkey: true}}},
		"secondfactor-passkey": {Script: "passkey", Data: SecondFactor{Passkey: challenge, WrongPasskey: true}},
		"secondfactor-all":     {Script: "passkey", Data: SecondFactor{Code: true, App: true, Recovery: true, Passkey: challenge}},
	}
}

// adminSamples are views of the pages of administrators.
func adminSamples() map[string]View {
	return map[string]View{
		"admin-empty": {Data: Admin{Person: Person{Name: "Alice"}}},
		"admin": {Data: Admin{
			Person: Person{"Alice Adams", "alice@example.org"}, Done: T("It is added."), Search: "a",
			Apps: AdminList{More: true, Items: []AdminItem{
				{Name: "a", Title: "App", Note: T("waits for approval"), Since: "2026-05-01", Address: "/oauth2/admin?kind=clients&name=a"}, {Name: "b", Title: "b", Note: T("in the configuration")},
			}},
			People: AdminList{Items: []AdminItem{{Name: "wendy", Title: "Wendy", Note: T("in the store"), Problem: "duplicate user wendy", Disabled: true}}},
		}},
		"adminentry-newapp":     {Data: AdminEntry{App: true, New: true}},
		"adminentry-newperson":  {Data: AdminEntry{New: true}},
		"adminentry-app":        {Data: AdminEntry{App: true, Name: "a", Problem: "no", Renews: true}},
		"adminentry-person":     {Data: AdminEntry{Name: "wendy", Disabled: true, Renews: true}},
		"adminentry-own":        {Data: AdminEntry{Name: "alice", Own: true}},
		"adminentry-registered": {Data: AdminEntry{App: true, Name: "a", Title: "App", Registered: true, Waits: true}},
		"adminsecret":           {Data: AdminSecret{"wendy", false, "abc"}},
		"adminsecret-app":       {Data: AdminSecret{"a", true, "abc"}},
	}
}
