// Clients that have keys or registered themselves, as npm oauth4webapi sees the
// authorization server.
//
//	KEYS    private keys of the clients keys-ES384 and keys-RS256, by algorithm
import assert from 'node:assert/strict';
import { before, test } from 'node:test';

import { importJWK } from 'jose';
import * as oauth from 'oauth4webapi';

import { Browser, expandGender, issuer, landed, othersHear, redirectURI, signIn } from './person.mjs';

const keys = JSON.parse(process.env.KEYS);
let server;

before(async () => {
	const url = new URL(issuer);
	server = await oauth.processDiscoveryResponse(url, await oauth.discoveryRequest(url));
});

// ask is an authorization request with PKCE, and what is needed to take the answer.
async function ask(client, scope) {
	const verifier = oauth.generateRandomCodeVerifier();
	const state = oauth.generateRandomState();
	const parameters = new URLSearchParams({
		client_id: client.client_id,
		redirect_uri: redirectURI,
		response_type: 'code',
		scope,
		state,
		code_challenge: await oauth.calculatePKCECodeChallenge(verifier),
		code_challenge_method: 'S256',
	});
	return { parameters, verifier, state };
}

async function push(client, authentication, parameters) {
	const response = await oauth.pushedAuthorizationRequest(server, client, authentication, parameters);
	const { request_uri } = await oauth.processPushedAuthorizationResponse(server, client, response);
	const url = new URL(server.authorization_endpoint);
	url.search = new URLSearchParams({ client_id: client.client_id, request_uri });
	return url;
}

async function exchange(client, authentication, asked, end) {
	const parameters = oauth.validateAuthResponse(server, client, end, asked.state);
	const response = await oauth.authorizationCodeGrantRequest(server, client, authentication, parameters, redirectURI, asked.verifier);
	return oauth.processAuthorizationCodeResponse(server, client, response);
}

async function refresh(client, authentication, token) {
	const response = await oauth.refreshTokenGrantRequest(server, client, authentication, token);
	return oauth.processRefreshTokenResponse(server, client, response);
}

async function introspect(client, authentication, token) {
	const response = await oauth.introspectionRequest(server, client, authentication, token);
	return oauth.processIntrospectionResponse(server, client, response);
}

const invalidGrant = (error) => error instanceof oauth.ResponseBodyError && error.error === 'invalid_grant';

for (const algorithm of ['ES384', 'RS256']) {
	const client = { client_id: `keys-${algorithm}` };
	let proof;

	before(async () => {
		const key = await importJWK(keys[algorithm], algorithm);
		proof = oauth.PrivateKeyJwt({ key, kid: keys[algorithm].kid });
	});

	test(`${algorithm}: pushed request, refresh with rotation and reuse, introspection, revocation`, async () => {
		const asked = await ask(client, 'openid offline_access user/*.rs');
		const pushed = await push(client, proof, asked.parameters);
		const given = await exchange(client, proof, asked, await signIn(pushed));
		assert.equal(oauth.getValidatedIdTokenClaims(given).sub, 'alice');

		const told = await introspect(client, proof, given.access_token);
		assert.equal(told.active, true);
		assert.equal(told.client_id, client.client_id);
		assert.equal((await introspect(client, proof, given.refresh_token)).active, true);

		const second = await refresh(client, proof, given.refresh_token);
		const third = await refresh(client, proof, second.refresh_token);
		assert.notEqual(third.refresh_token, second.refresh_token);
		assert.equal((await introspect(client, proof, given.refresh_token)).active, false);

		await assert.rejects(refresh(client, proof, given.refresh_token), invalidGrant);
		await assert.rejects(refresh(client, proof, third.refresh_token), invalidGrant, 'reuse ends the whole family');
		await othersHear();
		assert.equal((await introspect(client, proof, third.access_token)).active, false);
	});

	test(`${algorithm}: a pushed request is used once, and by its client`, async () => {
		const asked = await ask(client, 'openid');
		const url = await push(client, proof, asked.parameters);
		const stranger = new URL(url);
		stranger.searchParams.set('client_id', 'demo-app');
		assert.equal((await fetch(stranger, { redirect: 'manual' })).status, 400);

		const given = await exchange(client, proof, asked, await signIn(url));
		assert.equal(oauth.getValidatedIdTokenClaims(given).sub, 'alice', 'the stranger did not spend it');
		assert.equal((await fetch(url, { redirect: 'manual' })).status, 400);
	});

	test(`${algorithm}: client credentials, then revoked`, async () => {
		const response = await oauth.clientCredentialsGrantRequest(server, client, proof, { scope: 'system/*.rs' });
		const { access_token } = await oauth.processClientCredentialsResponse(server, client, response);
		const expands = () => fetch(expandGender, { headers: { authorization: `Bearer ${access_token}` } });
		assert.equal((await expands()).status, 200);
		await oauth.processRevocationResponse(await oauth.revocationRequest(server, client, proof, access_token));
		await othersHear();
		assert.equal((await expands()).status, 401);
	});
}

test('an assertion by the wrong key, and a secret in its place', async () => {
	const client = { client_id: 'keys-ES384' };
	const { privateKey } = await oauth.generateKeyPair('ES384');
	for (const authentication of [
		oauth.PrivateKeyJwt({ key: privateKey, kid: keys.ES384.kid }),
		oauth.ClientSecretPost('secret'),
		oauth.ClientSecretJwt(JSON.stringify(keys.ES384)),
		oauth.None(),
	]) {
		const response = await oauth.clientCredentialsGrantRequest(server, client, authentication, { scope: 'system/*.rs' });
		assert.equal(response.status, 401);
		assert.equal((await response.json()).error, 'invalid_client');
	}
});

test('who must push is refused without', async () => {
	const client = { client_id: 'keys-RS256' };
	const { parameters } = await ask(client, 'openid');
	const url = new URL(server.authorization_endpoint);
	url.search = parameters;
	const end = landed(await fetch(url, { redirect: 'manual' }));
	assert.throws(
		() => oauth.validateAuthResponse(server, client, end, oauth.skipStateCheck),
		(error) => error instanceof oauth.AuthorizationResponseError && error.error === 'invalid_request',
	);
});

// register registers an app (RFC 7591).
async function register(metadata) {
	const response = await oauth.dynamicClientRegistrationRequest(server, metadata, { initialAccessToken: 'initial-token' });
	return oauth.processDynamicClientRegistrationResponse(response);
}

for (const method of ['none', 'client_secret_basic', 'client_secret_post']) {
	test(`an app that registered itself, ${method}: consent, refresh, what it is told of itself, its end`, async () => {
		const client = await register({
			redirect_uris: [redirectURI],
			token_endpoint_auth_method: method,
			client_name: 'Registered <App>',
			scope: 'openid offline_access user/*.rs',
		});
		const authentication = {
			none: () => oauth.None(),
			client_secret_basic: oauth.ClientSecretBasic,
			client_secret_post: oauth.ClientSecretPost,
		}[method](client.client_secret);

		const asked = await ask(client, 'openid offline_access user/*.rs');
		const url = new URL(server.authorization_endpoint);
		url.search = asked.parameters;
		const browser = new Browser();
		const end = await browser.consent(await browser.signIn(url), 'user/*.rs');
		const given = await exchange(client, authentication, asked, end);
		assert.equal(given.scope, 'openid offline_access', 'what was not ticked is not given');
		const next = await refresh(client, authentication, given.refresh_token);
		assert.equal(next.scope, 'openid offline_access', 'nor later');

		const own = { headers: { authorization: `Bearer ${client.registration_access_token}` } };
		const known = await (await fetch(client.registration_client_uri, own)).json();
		assert.equal(known.client_id, client.client_id);
		assert.equal(known.client_name, 'Registered <App>');
		assert.equal(known.token_endpoint_auth_method, method);
		assert.equal(known.client_secret, undefined);
		assert.equal((await fetch(client.registration_client_uri, { ...own, method: 'DELETE' })).status, 204);
		await othersHear();
		await assert.rejects(refresh(client, authentication, next.refresh_token));
	});
}

test('registration without the token, or of an address that is none', async () => {
	const refused = await oauth.dynamicClientRegistrationRequest(server, { redirect_uris: [redirectURI] });
	assert.equal(refused.status, 401);
	await assert.rejects(
		register({ redirect_uris: ['javascript:alert(1)'] }),
		(error) => error instanceof oauth.ResponseBodyError && error.error === 'invalid_redirect_uri',
	);
});
