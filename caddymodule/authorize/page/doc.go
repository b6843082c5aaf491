// Package page renders the HTML pages: layout, texts, languages and Content-Security-Policy. Package flow and other callers
// provide the data.
//
//	site.go        Site, and View: one page to show; the Content-Security-Policy; the style for launched apps
//	content.go     data of each template, and ShowMessage for pages without a form
//	translation.go texts created in Go: T, Plural, JoinWithAnd, ErrorText; the languages; translation of texts and dates
//	branding.go    a site's name, logo, icons, color and links
//	templates.go   template files, AddFiles for files of features, and parsing for each language
//
// # Adding a page
//
// The template templates/<name>.html defines "title" and "body", each executed with [View.Data] (the types are in content.go).
// If the footer "You’re signing in to" is not suitable, the template also defines "footer", which is executed with the fields
// of the site and, in Data, the view's data.
//
//	{{define "title"}}{{t "Choose a patient"}}{{end}}
//	{{define "body"}}<h1>{{t "Choose a patient"}}</h1>
//	<p>{{t "to continue to %s" (strong .Client)}}</p>{{end}}
//
// Every text in a template is an argument of the function t: an English text and the values of its verbs. A value is a string,
// a number, a [Text], a [time.Duration] (shown as a wait: "30 seconds") or the result of strong or date. Counts use {{n "%d
// app" "%d apps" .Count}}. A text created in Go ([T], [Plural], [JoinWithAnd]) is shown with {{t .Text}}. The function sentence
// capitalizes its first letter. The argument of T must be a literal, because a test collects the texts. The test fails if a
// text is missing from texts.json in any language, is not used, or has different verbs; %[2]s refers to an argument by
// position. Plurals are lists of forms, e.g. ["%d App", "%d Apps"]. Translations use the formal address: Sie, vous, usted, u.
//
// To show the page:
//
//	site.Show(w, r, page.View{
//		Template: "selectpatient", Data: page.SelectPatient{…}, Locales: uiLocales,
//		Policy: page.Policy{FormAction: page.FormActionSources(redirectURI)},
//	})
//
// A page of an authorization request ends with a link that cancels the request and returns to the app: the path of the page
// with decision=deny, which results in access_denied. The link is outside the form, because tools that fill in forms expect
// only the form's fields.
//
// A script is scripts/<name>.js, selected by [View.Script]. It is inserted at the end of the page, and its hash is added to the
// Content-Security-Policy. Pages must work without scripts.
// Pages that list patients also contain scripts/reload.js.
//
// Pages of features work the same way, with files and data types in the feature's folder ([AddFiles]). Package pagetest
// contains the tests.
package page
