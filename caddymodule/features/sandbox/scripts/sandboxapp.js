"use strict";
// A SMART app (SMART App Launch 2.2): a public client, with PKCE. It knows no more of the
// gateway than the standard says, and has its words in the page.
(() => {
	const byId = (id) => document.getElementById(id);
	const { clientId, redirectUri, fhirBase, scope } = byId("app").dataset;
	const query = new URLSearchParams(location.search);

	// What the app was given; nothing of it outlives the page.
	let granted, tokenEndpoint, allScopes;

	const word = (name) => byId("words").content.querySelector(`[data-word="${name}"]`)?.textContent ?? "";

	const element = (name, text, ...children) => {
		const made = document.createElement(name);
		made.append(text, ...children);
		return made;
	};

	const show = (id, text) => {
		byId(id).hidden = false;
		if (text !== undefined) byId(id).textContent = text;
	};

	class Refusal extends Error {}

	// Texts for the address bar.
	const base64url = (bytes) => btoa(String.fromCharCode(...new Uint8Array(bytes))).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
	const random = () => base64url(crypto.getRandomValues(new Uint8Array(32)));

	// Discovery and the authorization request.
	const authorize = async (launch) => {
		const answer = await fetch(fhirBase + "/.well-known/smart-configuration", { headers: { Accept: "application/json" } });
		if (!answer.ok) throw new Error("smart-configuration: " + answer.status);
		const smart = await answer.json();
		const state = random(), nonce = random(), verifier = random();
		const challenge = base64url(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier)));
		const kept = { nonce, verifier, issuer: smart.issuer, tokenEndpoint: smart.token_endpoint, other: query.get("other") ?? "" };
		sessionStorage.setItem("sandbox-app " + state, JSON.stringify(kept));
		const request = new URLSearchParams({
			response_type: "code", client_id: clientId, redirect_uri: redirectUri, state, nonce, aud: fhirBase,
			scope: (launch ? "launch " : "launch/patient ") + scope, code_challenge: challenge, code_challenge_method: "S256",
		});
		if (launch) request.set("launch", launch);
		location.replace(smart.authorization_endpoint + "?" + request);
	};

	// The token endpoint.
	const requestTokens = async (parameters) => {
		const answer = await fetch(tokenEndpoint, { method: "POST", body: new URLSearchParams({ client_id: clientId, ...parameters }) });
		const body = await answer.json();
		if (!answer.ok) throw new Refusal([body.error, body.error_description].filter(Boolean).join(": "));
		return body;
	};

	const claimsOf = (token) => {
		const bytes = Uint8Array.from(atob(token.split(".")[1].replace(/-/g, "+").replace(/_/g, "/")), (c) => c.charCodeAt(0));
		return JSON.parse(new TextDecoder().decode(bytes));
	};

	// The token came from the token endpoint by TLS, so its signature need not be checked
	// (OpenID Connect Core §3.1.3.7).
	const checkIDToken = (claims, kept) => {
		const fits = claims.iss === kept.issuer && [claims.aud].flat().includes(clientId) && claims.nonce === kept.nonce && claims.exp * 1000 > Date.now();
		if (!fits) throw new Refusal(word("expired"));
	};

	const redeem = async () => {
		const key = "sandbox-app " + query.get("state"), kept = JSON.parse(sessionStorage.getItem(key));
		sessionStorage.removeItem(key);
		history.replaceState(null, "", location.pathname);
		if (!kept || query.has("iss") && query.get("iss") !== kept.issuer) throw new Refusal(word("expired"));
		if (query.has("error")) throw new Refusal([query.get("error"), query.get("error_description")].filter(Boolean).join(": "));
		tokenEndpoint = kept.tokenEndpoint;
		granted = await requestTokens({ grant_type: "authorization_code", code: query.get("code"), redirect_uri: redirectUri, code_verifier: kept.verifier });
		allScopes = granted.scope;
		if (granted.id_token) checkIDToken(claimsOf(granted.id_token), kept);
		byId("other").value = kept.other;
		await showAll();
	};

	// The same grant with fewer scopes (RFC 6749 §6), or with all.
	const narrow = async (scopes) => {
		granted = { ...granted, ...await requestTokens({ grant_type: "refresh_token", refresh_token: granted.refresh_token, scope: scopes }) };
		await showAll();
	};

	// What there is to see of a resource.
	const textOf = (concept) => concept?.text ?? concept?.coding?.map((c) => c.display ?? c.code)[0] ?? "";
	const nameOf = (patient) => {
		const name = patient.name?.find((n) => n.use === "official") ?? patient.name?.[0];
		return name?.text ?? [...name?.given ?? [], name?.family].filter(Boolean).join(" ");
	};
	const quantityOf = (o) => o?.valueQuantity ? `${o.valueQuantity.value} ${o.valueQuantity.unit ?? ""}`.trim() : textOf(o?.valueCodeableConcept);
	const valueOf = (o) => quantityOf(o) || (o.component ?? []).map(quantityOf).join(" / ");
	const dateFormat = { day: "numeric", month: "short", year: "numeric" }; // as on the pages of the gateway
	const dayOf = (time) => /^\d{4}-\d\d-\d\d/.test(time) ? new Date(time.slice(0, 10)).toLocaleDateString(document.documentElement.lang, { ...dateFormat, timeZone: "UTC" }) : time ?? "";
	const summaries = {
		Patient: (r) => [nameOf(r), dayOf(r.birthDate), word("gender-" + r.gender)],
		Condition: (r) => [textOf(r.code), dayOf(r.onsetDateTime ?? r.recordedDate)],
		Observation: (r) => [textOf(r.code), valueOf(r), dayOf(r.effectiveDateTime ?? r.effectivePeriod?.start)],
		MedicationRequest: (r) => [textOf(r.medicationCodeableConcept) || r.medicationReference?.display, dayOf(r.authoredOn)],
	};
	const summary = (r) => (summaries[r.resourceType]?.(r) ?? [r.resourceType + "/" + r.id]).filter(Boolean).join(", ");

	// One request to the FHIR API, as an item of a list.
	const most = 5;
	const ask = async (title, path) => {
		const answer = await fetch(fhirBase + "/" + path, { headers: { Authorization: "Bearer " + granted.access_token, Accept: "application/fhir+json" } });
		const body = await answer.json().catch(() => null);
		const status = element("p", element("code", "GET " + path), element("br", ""), element("strong", String(answer.status)), " ", answer.ok ? word("allowed") : word("status-" + answer.status));
		status.className = answer.ok ? "allowed" : "refused";
		const item = element("li", element("h3", word(title)), status);
		if (answer.ok) item.append(listOf(body));
		if (body) item.append(whole(body));
		return { item, body: answer.ok ? body : null };
	};
	const listOf = (body) => {
		const resources = body.resourceType === "Bundle" ? (body.entry ?? []).map((e) => e.resource).filter((r) => r.resourceType !== "OperationOutcome") : [body];
		const list = element("ul", "", ...resources.slice(0, most).map((r) => element("li", summary(r))));
		if (resources.length === 0) list.append(element("li", word("nothing")));
		if (resources.length > most || body.link?.some((l) => l.relation === "next")) list.append(element("li", word("more")));
		return list;
	};
	const whole = (body) => {
		const text = element("pre", JSON.stringify(body, null, 2));
		text.tabIndex = 0; // it scrolls
		return element("details", element("summary", word("answer")), text);
	};

	const fill = async (section, requests) => {
		const answers = await Promise.all(requests.map(([title, path]) => ask(title, path)));
		byId(section).querySelector(".answers").replaceChildren(...answers.map((a) => a.item));
		show(section);
		return answers;
	};

	const showRecord = async () => {
		const patient = encodeURIComponent(granted.patient);
		const [first] = await fill("record", [
			["Patient", "Patient/" + patient],
			["Condition", "Condition?patient=" + patient],
			["Observation", "Observation?patient=" + patient + "&_sort=-date&_count=20"],
			["MedicationRequest", "MedicationRequest?patient=" + patient],
		]);
		byId("banner").hidden = granted.need_patient_banner === false || !first.body;
		if (first.body) byId("banner").textContent = summary(first.body);
	};

	const showRefused = () => {
		const other = byId("other").value, requests = [["AllergyIntolerance", "AllergyIntolerance?patient=" + encodeURIComponent(granted.patient)]];
		if (other) requests.unshift(["other", "Patient/" + encodeURIComponent(other)]);
		return fill("refused", requests);
	};

	// Members of an object, each with what it means.
	const explain = (section, kind, object) => {
		const rows = Object.entries(object).map(([name, value]) => {
			const text = typeof value === "string" ? value : JSON.stringify(value);
			const time = ["exp", "iat", "auth_time"].includes(name) ? ` (${new Date(value * 1000).toLocaleString(document.documentElement.lang, { ...dateFormat, hour: "numeric", minute: "2-digit", second: "2-digit" })})` : "";
			const short = name.endsWith("_token") ? text.slice(0, 12) + "…" : text + time;
			return element("div", element("dt", element("code", name)), element("dd", element("code", short)), element("dd", word(kind + " " + name)));
		});
		byId(section).querySelector("dl").replaceChildren(...rows);
		show(section);
	};

	const showAll = async () => {
		explain("token", "token", granted);
		if (granted.id_token) explain("identity", "id_token", claimsOf(granted.id_token));
		byId("scopes").hidden = !granted.refresh_token;
		byId("fewer").hidden = granted.scope !== allScopes;
		byId("all").hidden = !byId("fewer").hidden;
		if (granted.patient) await Promise.all([showRecord(), showRefused()]);
	};

	const run = async (work) => {
		byId("problem").hidden = true;
		show("progress", word("working"));
		try {
			await work();
		} catch (e) {
			show("problem", (e instanceof Refusal ? word("refused") : word("failed")) + " " + e.message);
		}
		byId("progress").hidden = true;
	};

	const fewer = () => allScopes.split(" ").filter((s) => !/^patient\/(Observation|MedicationRequest)\./.test(s)).join(" ");
	byId("fewer").addEventListener("click", () => run(() => narrow(fewer())).then(() => byId("all").focus()));
	byId("all").addEventListener("click", () => run(() => narrow(allScopes)).then(() => byId("fewer").focus()));
	byId("try").addEventListener("submit", (e) => {
		e.preventDefault();
		run(showRefused);
	});

	if (query.has("code") || query.has("error")) {
		run(redeem);
	} else if (query.has("iss")) {
		if (query.get("iss").replace(/\/$/, "") === fhirBase) run(() => authorize(query.get("launch")));
		else show("problem", word("foreign"));
	}
})();
