package page

import (
	"html/template"
	"net/http"
	"net/url"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
)

// SignIn is the data of templates/signin.html.
type SignIn struct {
	Client         string         // client's title
	Links          AppLinks       // links registered by the client
	Request        string         // sealed request
	Username       string         // last input, or login_hint
	Problem        SignInProblem  // problem with the last attempt
	OffersPassword bool           // whether the password sign-in is available
	Passkey        *Passkey       // passkey challenge; nil without passkeys
	AcceptsEmail   bool           // whether entering an e-mail address may redirect to a provider
	Providers      []ProviderLink // identity providers
}

// SignInProblem is the reason for showing the sign-in page again. Each field may be zero.
type SignInProblem struct {
	Failed       bool          // whether the last attempt failed
	Wait         time.Duration // time until the next attempt
	ProviderDown string        // name of the unreachable provider
	BusyWait     time.Duration // time until the next attempt after too many concurrent attempts

	Passkey bool // whether the passkey was rejected
}

// Passkey is a challenge for the script "passkey". Pages hide it without scripts.
type Passkey struct {
	Options string // options of navigator.credentials in JSON
	Sealed  string // sealed value, submitted with the answer
}

// Any reports whether any field is set.
func (p SignInProblem) Any() bool { return p != SignInProblem{} }

// ProviderLink is a link to an identity provider.
type ProviderLink struct {
	Name    string // name of the provider
	Address string // target of the link
}

// SecondFactor is the data of templates/secondfactor.html.
type SecondFactor struct {
	Client    string        // client's title
	Pending   string        // sealed pending sign-in
	WrongCode bool          // whether the last code was wrong
	Wait      time.Duration // time until the next attempt

	AcceptsCode              bool     // whether codes are accepted
	HasApp, HasRecoveryCodes bool     // kinds of available codes
	Passkey                  *Passkey // passkey challenge; nil without passkeys
	WrongPasskey             bool     // whether the passkey was rejected
}

// SelectAccount is the data of templates/selectaccount.html.
type SelectAccount struct {
	Client  string // client's title
	Request string // sealed request
	Person  Person // signed-in person
}

// Person identifies a person on pages.
type Person struct {
	Name   string // best available name
	Detail string // distinguishes people with the same name; may be ""
}

// SignInRejected is the data of templates/refused.html.
type SignInRejected struct {
	Client         string // client's title; "" for a page of the gateway
	SealedSignIn   string // sealed sign-in
	Person         Person // rejected person
	Provider       string // identity provider of the person
	SupportsLogout bool   // whether the provider supports logout
}

// SignOut is the data of templates/signout.html.
type SignOut struct {
	Client  string // client's title; "" without a client
	Request string // sealed request
}

// FormPost is the data of templates/formpost.html: a form that the script "submit" submits, or a
// button without scripts.
type FormPost struct {
	Client   string  // client's title
	Address  string  // target of the form
	Fields   []Field // fields of the form
	Question *Text   // question that the person must answer by pressing the button; may be nil
}

// Field is a hidden field of a form.
type Field struct {
	Name  string // parameter name
	Value string // parameter value
}

// Message is the data of templates/message.html.
type Message struct {
	Title  *Text  // heading
	Text   *Text  // event, and what the person can do
	Detail string // English detail for the client's developer
	Next   *Link  // link to continue; may be nil
}

// Link is a link to another page.
type Link struct {
	Address string // URL
	Text    *Text  // link text
}

// ShowMessage shows a message.
func (s *Site) ShowMessage(w http.ResponseWriter, r *http.Request, status int, message Message) {
	s.Show(w, r, View{Template: "message", Status: status, Data: message})
}

// AppLinks are the links of an app that registered itself (RFC 7591 §2), unverified. The browser
// loads nothing from the app: its logo is served by the gateway.
type AppLinks struct {
	Client string // client's title
	Logo   string // URL of the logo at the gateway, or ""
	Policy string // URL of the privacy policy, or ""
	Terms  string // URL of the terms of service, or ""
}

// LogoOf returns the URL of a client's logo.
func LogoOf(clientID string) string {
	return endpoint.ClientLogo + "?client_id=" + url.QueryEscape(clientID)
}

// Images returns the image sources of these links for [Policy].
func (a AppLinks) Images() string {
	if a.Logo == "" {
		return ""
	}
	return "'self'"
}

// Account is the data of templates/account.html, the account page.
type Account struct {
	Request      string           // sealed request
	Person       Person           // the user
	Confirmation *Text            // confirmation of the last action; nil if none
	Apps         []AccountApp     // apps with access
	Sessions     []AccountSession // sessions
	Factors      AccountFactors   // second factors
}

// AccountApp is an app with access.
type AccountApp struct {
	ID        string  // client_id
	Name      string  // client's title
	Since     *Text   // start of access
	LastUsed  *Text   // last use; nil if unknown
	AccessEnd *Text   // end of access
	Scope     []*Text // accessible data

	Records []AccountRecords // patients whose records are accessible
}

// AccountRecords describes an app's access to one patient's records.
type AccountRecords struct {
	Owner *Text  // owner in words
	Since *Text  // start of access
	Until string // expiry date; "" for the end of the session
}

// AccountSession is a session of the user.
type AccountSession struct {
	ID        string // sid
	Device    *Text  // browser and operating system
	Since     *Text  // time of the sign-in
	Provider  string // identity provider, or ""
	Network   string // network of the IP address
	IsCurrent bool   // whether this is the current session
}

// AccountFactors are a user's second factors.
type AccountFactors struct {
	ManagedHere      bool             // whether the gateway manages the user's factors
	Provider         string           // where the user signs in otherwise; "" if unknown
	AppConfigured    bool             // authenticator app from the configuration, which the user cannot remove
	App              *Text            // enrollment time of an authenticator app; nil if none
	RecoveryCodes    int              // number of remaining recovery codes
	HasAny           bool             // whether any factor is enrolled
	SupportsPasskeys bool             // whether this site supports passkeys
	Passkeys         []AccountPasskey // oldest first
}

// AccountPasskey is a passkey.
type AccountPasskey struct {
	ID       string // credential id
	Name     string // name chosen by the user
	Enrolled *Text  // enrollment time
	LastUsed *Text  // last use; nil for never
}

// AppSetup is the data of templates/appsetup.html for enrolling an authenticator app.
type AppSetup struct {
	Request   string        // sealed request
	SealedKey string        // sealed new key
	QR        template.URL  // QR code of the key
	Secret    string        // key as text
	WrongCode bool          // whether the last code was wrong
	Wait      time.Duration // time until the next attempt
}

// PasskeySetup is the data of templates/passkeysetup.html.
type PasskeySetup struct {
	Request  string   // sealed request
	Name     string   // suggested name
	Passkey  *Passkey // challenge
	Rejected bool     // whether the last answer was rejected
}

// RecoveryCodes is the data of templates/recoverycodes.html, shown once.
type RecoveryCodes struct {
	Codes        []string // codes in order of creation
	Confirmation *Text    // confirmation of the action
}

// Consent is the data of templates/consent.html.
type Consent struct {
	Client         string         // client's title
	Links          AppLinks       // links registered by the client
	Request        string         // sealed request
	RedirectHost   string         // host of the redirect URI
	Person         Person         // user
	SelfRegistered bool           // whether the client registered itself
	Patient        ConsentPatient // patient of the launch context
	RequiredItems  []*Text        // items that cannot be unticked
	Groups         []ConsentGroup // items that can be unticked
}

// ConsentPatient is the patient of the launch context; zero without a patient, or for the user's own record.
type ConsentPatient struct {
	ID        string // resource id
	Name      string // "" if unknown
	BirthDate string // FHIR date; may be empty
}

// ConsentGroup is a group of checkboxes.
type ConsentGroup struct {
	Legend *Text         // heading
	Items  []ConsentItem // items in display order
}

// ConsentItem is a checkbox with checkboxes for its parts.
type ConsentItem struct {
	Name         string        // name of the form field
	Text         *Text         // permission
	Detail       *Text         // possible actions; may be nil
	Ticked       bool          // initial state
	PartlyTicked bool          // whether any part is unticked
	Permissions  []ConsentItem // parts by read and write access
	Parts        []ConsentItem // parts by kind of data
	Times        []ConsentTime // selectable lifetimes
}

// ConsentTime is a selectable lifetime.
type ConsentTime struct {
	Value  string // value of the form field
	Text   *Text  // label, e.g. "30 days"
	Ticked bool   // initial state
}

// SelectPatient is the data of templates/selectpatient.html.
type SelectPatient struct {
	Client     string        // client's title
	Request    string        // sealed request
	Problem    ChoiceProblem // problem with the choice or the list
	Searchable bool          // whether patients can be searched by the following fields
	Name       string        // search input
	BirthDate  string        // search input
	Identifier string        // search input
	Patients   []Patient     // patients to choose from
	HasMore    bool          // whether further patients match
}

// Patient is a patient to choose. All fields but ID may be "".
type Patient struct {
	ID         string // resource id
	Name       string // full name
	BirthDate  string // FHIR date
	Identifier string // identifier, e.g. a medical record number
	Address    string // address on one line
	Gender     *Text  // administrative gender
}

// SelectEncounter is the data of templates/selectencounter.html.
type SelectEncounter struct {
	Client     string        // client's title
	Request    string        // sealed request
	Problem    ChoiceProblem // problem with the choice or the list
	Patient    string        // patient's name; may be ""
	Encounters []Encounter   // encounters to choose from, latest first
	HasMore    bool          // whether earlier encounters exist
}

// Encounter is an encounter to choose. All fields but ID may be "".
type Encounter struct {
	ID    string // resource id
	Kind  string // type or class
	Start string // FHIR date or time
	Place string // name of the organization
}

// ChoiceProblem is the reason for showing a selection page again, or zero.
type ChoiceProblem struct {
	NotPermitted bool // whether the choice is not permitted
	ServerDown   bool // whether the FHIR server is unreachable
}

// Gender returns the label of a FHIR AdministrativeGender code; nil for unknown.
func Gender(code string) *Text {
	switch code {
	case "female":
		return T("female")
	case "male":
		return T("male")
	case "other":
		return T("other gender")
	}
	return nil
}
