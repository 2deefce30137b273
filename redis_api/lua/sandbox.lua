-- What scripts of Redis' clients see, and all that bounds them. One runtime runs this once, and then one script.
--
-- The script gets an environment of its own, and no way to this one: no debug, no fenv, no coroutines, no
-- loading of code. All state here is in locals. `host` is the only way to Python; it never raises, takes and
-- returns no objects but tables it has made, and lifts the bound of memory, which an allocation in Python
-- could not survive: so `limit` follows each call of it.

local host, hook_count, budget, seconds, version, version_number, cjson_chunk, cmsgpack_chunk = ...

local error, floor, format, getinfo, getmetatable = error, math.floor, string.format, debug.getinfo, getmetatable
local loadstring, pcall, rawget, rawset, select = loadstring, pcall, rawget, rawset, select
local setfenv, sethook, setmetatable, sub, tonumber = setfenv, debug.sethook, setmetatable, string.sub, tonumber
local tostring, type, unpack, xpcall = tostring, type, unpack, xpcall
local byte, clock, find, gsub, match = string.byte, os.clock, string.find, string.gsub, string.match
local concat, next = table.concat, next

local SOURCE = "@user_script"
local ARGS_MAX = 1024
local STRING_MAX = 512 * 1024
local PATTERN_MAX = 250   -- the C code recurses once for each item of a pattern
local DEPTH_MAX = 100     -- of a reply
local UNPACKED_MAX = 7000
local ITEMS_MAX = 20000   -- of a reply

-- -- what it may cost: a unit is about an instruction ----------------------------------------------------------

local used, ends_at, is_over = 0, 0, false

local function check()
    if is_over or used > budget or clock() > ends_at then
        is_over = true
        -- From here on each instruction raises, so that no pcall of the script can go on.
        sethook(check, "", 1)
        error("out of time", 0)
    end
end

local function on_count()
    used = used + hook_count
    check()
end

local function spend(units)
    used = used + (units >= 0 and units or budget)  -- what is not a number would make all of it none
    check()
end

-- Call Python. What an answer costs is paid before.
local function ask(...)
    spend(200)
    local kind, value = host(...)
    host("limit")
    if kind == "over" then
        used = budget + 1
        check()
    end
    return kind, value
end

-- -- errors ----------------------------------------------------------------------------------------------------

-- Return in which line the script is; nil if it ended with a call, of which nothing is left then.
local function line_of_script()
    local level, info = 2, nil
    repeat
        info = getinfo(level, "Sl")
        level = level + 1
    until not info or info.source == SOURCE
    return info and info.currentline
end

-- Raise an error that says where the script is, as those of C functions do.
local function fail(message)
    local line = line_of_script()
    error("user_script:" .. (line and line .. ":" or "") .. " " .. message, 0)
end

local function refuse()
    fail("Attempt to modify a readonly table")
end

-- What is behind each table that cannot be changed.
local behind = {}

local function frozen(content)
    local proxy = {}
    behind[proxy] = content
    return setmetatable(proxy, {__index = content, __newindex = refuse, __metatable = false})
end

-- Return an error of a C function that was called here as one of the script.
local function as_of_script(problem, line)
    return (gsub(problem, "^sandbox:%d+:", "user_script:" .. (line and line .. ":" or "")))
end

-- Runs where the error is raised. Nothing of the script is called: the hook may be off there.
local function on_error(problem)
    local line = line_of_script()
    if type(problem) == "string" then problem = as_of_script(problem, line) end
    if type(problem) ~= "table" then
        local kind = type(problem)
        local is_plain = kind == "string" or kind == "number" or kind == "boolean" or kind == "nil"
        problem = {err = "ERR " .. (is_plain and tostring(problem) or kind)}
    end
    rawset(problem, "line", line)
    return problem
end

-- -- the library of Lua, bounded -------------------------------------------------------------------------------

local strings = {
    byte = byte, char = string.char, format = format, len = string.len, lower = string.lower,
    reverse = string.reverse, sub = sub, upper = string.upper,
}

function strings.rep(text, count)
    count = tonumber(count)
    if not count or type(text) ~= "string" and type(text) ~= "number" then return string.rep(text, count) end
    local length = #tostring(text) * count
    if not (length > 0) then return "" end
    if length > STRING_MAX then fail("resulting string too large") end
    spend(length / 16)
    return string.rep(text, count)
end

-- Refuse a pattern that might take long: the C code tries all lengths of each part that repeats.
local function spend_on(text, pattern, is_anchored)
    if type(text) ~= "string" and type(text) ~= "number" then return end  -- an error of its own
    if type(pattern) ~= "string" then return end
    if #pattern > PATTERN_MAX then fail("pattern too long: at most 250 bytes are allowed") end
    local _, repeats = gsub(pattern, "[*+?-]", "")
    local _, others = gsub(pattern, "%%[bf1-9]", "")
    local tries = repeats + others + (is_anchored and byte(pattern) == 94 and 0 or 1)
    local cost = (#tostring(text) + 1) ^ tries * #pattern / 4
    if cost > budget then fail("pattern too complex for a text of this length") end
    spend(cost)
end

function strings.find(text, pattern, init, plain)
    if plain and type(text) == "string" and type(pattern) == "string" then
        spend(#text * #pattern / 64)
    else
        spend_on(text, pattern, true)
    end
    return find(text, pattern, init, plain)
end

function strings.match(text, pattern, init)
    spend_on(text, pattern, true)
    return match(text, pattern, init)
end

local gmatch = string.gmatch
function strings.gmatch(text, pattern)
    spend_on(text, pattern, false)
    return gmatch(text, pattern)
end

function strings.gsub(text, pattern, ...)
    spend_on(text, pattern, true)
    return gsub(text, pattern, ...)
end

local insert, remove, sort = table.insert, table.remove, table.sort
local tables = {}

function tables.insert(t, ...)
    local at = tonumber((...))
    if select("#", ...) > 1 and type(t) == "table" and at then
        if not (at >= 1 and at <= #t + 1) then fail("bad argument #2 to 'insert' (position out of bounds)") end
        spend(#t * 2)
    end
    return insert(t, ...)
end

function tables.remove(t, ...)
    if select("#", ...) > 0 and type(t) == "table" then spend(#t * 2) end
    return remove(t, ...)
end

function tables.concat(t, ...)
    if type(t) == "table" then spend(#t * 4) end
    return concat(t, ...)
end

-- An order that is a function of Lua is stopped by the hook.
local function is_less(one, two)
    return one < two
end

function tables.sort(t, order)
    if order ~= nil and type(order) ~= "function" then return sort(t, order) end
    local compare = order or is_less
    return sort(t, function(one, two) return compare(one, two) end)
end

function tables.getn(t)
    return #t
end

function tables.maxn(t)
    local highest = 0
    for key in next, t do
        if type(key) == "number" and key > highest then highest = key end
    end
    return highest
end

-- The C code does not see that so many are too many, and writes beyond its stack.
local function unpacked(t, first, last)
    if type(t) == "table" then
        local from, to = tonumber(first) or 1, tonumber(last) or #t
        if not (to - from < UNPACKED_MAX) then fail("too many results to unpack") end
        spend(to < from and 0 or (to - from) / 4)
    end
    return unpack(t, first, last)
end

local maths = {}
for name, value in next, math do
    maths[name] = value
end
maths.randomseed = function(seed)
    ask("seed", tonumber(seed) or fail("bad argument #1 to 'randomseed' (number expected)"))
end
maths.random = function(...)
    local low, high = ...
    local _, part = ask("random")
    if select("#", ...) == 0 then return part end
    low, high = tonumber(low), tonumber(high)
    if high == nil then low, high = 1, low end
    if not (low and high and low <= high) then fail("bad argument #1 to 'random' (interval is empty)") end
    return floor(part * (high - low + 1)) + low
end

local bits = {}
for name in gmatch("tobit bnot bswap band bor bxor lshift rshift arshift rol ror tohex", "%a+") do
    bits[name] = function(...)
        for at = 1, select("#", ...) do
            if type((select(at, ...))) ~= "number" then
                fail(format("bad argument #%d to '%s' (number expected)", at, name))
            end
        end
        local kind, value = ask(name, ...)
        if kind ~= "ok" then fail(format("bad argument #1 to '%s' (number expected)", name)) end
        return value
    end
end

-- -- redis -----------------------------------------------------------------------------------------------------

local redis = {
    LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3,
    REPL_NONE = 0, REPL_AOF = 1, REPL_SLAVE = 2, REPL_REPLICA = 2, REPL_ALL = 3,
    REDIS_VERSION = version, REDIS_VERSION_NUM = version_number,
}

local function failure(message)
    error({err = "ERR " .. message}, 0)
end

-- Return the reply of a command, or its error as text.
local function command(...)
    local count = select("#", ...)
    if count == 0 then return nil, "ERR Please specify at least one argument for this redis lib call" end
    if count > ARGS_MAX then return nil, "ERR too many arguments: at most 1024 are allowed" end
    local words = {...}
    for at = 1, count do
        local word = words[at]
        if type(word) == "number" then
            words[at] = format("%.17g", word)
        elseif type(word) ~= "string" then
            return nil, "ERR Lua redis lib command arguments must be strings or integers"
        end
    end
    spend(2000)
    local kind, value = ask("call", unpack(words, 1, count))
    if kind == "error" then return nil, value end
    return value
end

function redis.call(...)
    local reply, problem = command(...)
    if problem then error({err = problem}, 0) end
    return reply
end

function redis.pcall(...)
    local reply, problem = command(...)
    if problem then return {err = problem} end
    return reply
end

local function reply_of(field, ...)
    local text = ...
    if select("#", ...) ~= 1 or type(text) ~= "string" then
        return {err = "ERR wrong number or type of arguments"}
    end
    return {[field] = text}
end

function redis.error_reply(...)
    local reply = reply_of("err", ...)
    if sub(reply.err, 1, 1) == "-" then reply.err = sub(reply.err, 2) end
    if not find(reply.err, " ", 1, true) then reply.err = "ERR " .. reply.err end
    return reply
end

function redis.status_reply(...)
    return reply_of("ok", ...)
end

function redis.sha1hex(...)
    local text = ...
    if select("#", ...) ~= 1 then failure("wrong number of arguments") end
    text = type(text) == "string" and text or type(text) == "number" and tostring(text) or ""
    spend(#text / 8)
    local _, digest = ask("sha1hex", text)
    return digest
end

function redis.log(level, ...)
    if select("#", ...) == 0 then failure("redis.log() requires two arguments or more.") end
    if type(level) ~= "number" then failure("First argument must be a number (log level).") end
    if level < 0 or level > 3 then failure("Invalid log level.") end
    local parts = {}
    for at = 1, select("#", ...) do
        local part = select(at, ...)
        parts[at] = (type(part) == "string" or type(part) == "number") and sub(part, 1, 200) or ""
    end
    ask("log", sub(concat(parts, " "), 1, 200))
end

function redis.setresp(protocol, ...)
    if protocol == nil or select("#", ...) > 0 then failure("redis.setresp() requires one argument.") end
    if protocol ~= 2 and protocol ~= 3 then failure("RESP version must be 2 or 3.") end
    ask("setresp", protocol)
end

-- Every script is applied by its effects.
function redis.replicate_commands()
    return true
end
function redis.set_repl() end

-- -- libraries in files of their own --------------------------------------------------------------------------

-- Return the length of an array, nil if a table has other keys.
local function length_of(t)
    local highest, count = 0, 0
    for key in next, t do
        if type(key) ~= "number" or key < 1 or floor(key) ~= key then return nil end
        if key > highest then highest = key end
        count = count + 1
    end
    return highest, count
end

local cjson = loadstring(cjson_chunk)(spend, fail, length_of)
local cmsgpack = loadstring(cmsgpack_chunk)(ask, fail, failure, length_of, DEPTH_MAX)

-- -- what a script sees ----------------------------------------------------------------------------------------

-- Both look at the clock: where calls are nested as deep as they may be, the hook cannot, and only raises.
local function as_text(is_done, problem, ...)
    spend(10)
    if is_done then return true, problem, ... end
    if type(problem) == "table" and type(rawget(problem, "err")) == "string" then problem = rawget(problem, "err") end
    if type(problem) == "string" then problem = as_of_script(problem) end
    return false, problem
end

local function handled(handler, is_done, ...)
    spend(10)
    if is_done then return true, ... end
    local _, problem = as_text(false, ...)
    return false, handler(problem)
end

local globals = {
    _VERSION = _VERSION, assert = assert, bit = frozen(bits), cjson = frozen(cjson), cmsgpack = frozen(cmsgpack),
    error = error, getmetatable = getmetatable, ipairs = ipairs, math = frozen(maths), next = next,
    pairs = pairs, rawequal = rawequal, redis = frozen(redis), select = select, setmetatable = setmetatable,
    string = frozen(strings), table = frozen(tables), tonumber = tonumber, tostring = tostring, type = type,
    unpack = unpacked,
}

function globals.pcall(...)
    return as_text(pcall(...))
end

-- The handler runs when all is unwound: where the error is raised the hook may be off.
function globals.xpcall(body, handler)
    return handled(handler, pcall(body))
end

function globals.rawget(t, key)
    return rawget(behind[t] or t, key)
end

function globals.rawset(t, key, value)
    if behind[t] then failure("Attempt to modify a readonly table") end
    return rawset(t, key, value)
end

-- Memory is collected when it is needed, and says nothing of a script.
function globals.collectgarbage()
    return 0
end

setmetatable(globals, {
    __index = function(_, name)
        fail("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'")
    end,
})
local environment = frozen(globals)
globals._G = environment

local of_strings = getmetatable("")
of_strings.__index, of_strings.__metatable = strings, false

-- -- replies ---------------------------------------------------------------------------------------------------

local flatten

local function flatten_table(out, value, depth)
    local text = rawget(value, "err")
    if type(text) == "string" then
        out[#out + 1], out[#out + 2] = "error", text
        return
    end
    text = rawget(value, "ok")
    if type(text) == "string" then
        out[#out + 1], out[#out + 2] = "status", text
        return
    end
    local number = rawget(value, "double")
    if type(number) == "number" then
        out[#out + 1], out[#out + 2] = "bytes", format("%.17g", number)
        return
    end
    text = rawget(value, "big_number")
    if type(text) == "string" then
        out[#out + 1], out[#out + 2] = "bytes", text
        return
    end
    text = rawget(value, "verbatim_string")
    if type(text) == "table" and type(rawget(text, "string")) == "string" then
        out[#out + 1], out[#out + 2] = "bytes", rawget(text, "string")
        return
    end
    out[#out + 1], out[#out + 2] = "array", 0
    local place, count = #out, 0
    local map, set = rawget(value, "map"), rawget(value, "set")
    if type(map) == "table" or type(set) == "table" then
        for key, item in next, type(map) == "table" and map or set do
            flatten(out, key, depth + 1)
            count = count + 1
            if type(map) == "table" then
                flatten(out, item, depth + 1)
                count = count + 1
            end
        end
    else
        local item = rawget(value, 1)
        while item ~= nil do
            flatten(out, item, depth + 1)
            count = count + 1
            item = rawget(value, count + 1)
        end
    end
    out[place] = count
end

-- Append what a value is as a reply: what it is, and what it has; an array, its length, and then its elements.
function flatten(out, value, depth)
    if depth > DEPTH_MAX then failure("reached lua stack limit") end
    if #out > ITEMS_MAX then failure("the reply of a script is too long") end
    local kind = type(value)
    if kind == "string" then
        out[#out + 1], out[#out + 2] = "bytes", value
    elseif kind == "number" then
        out[#out + 1], out[#out + 2] = "integer", value
    elseif kind == "boolean" and value then
        out[#out + 1], out[#out + 2] = "integer", 1
    elseif kind == "table" then
        flatten_table(out, value, depth)
    else
        out[#out + 1], out[#out + 2] = "nil", 0
    end
end

-- -- running ---------------------------------------------------------------------------------------------------

collectgarbage("setpause", 100)
collectgarbage("setstepmul", 400)
debug = nil -- lupa would call its traceback for every error

-- Return what became of a script: "syntax" and why, or "done" and its reply in parts, or "failed", why, and where.
return function(source, keys_count, ...)
    local script, problem = loadstring(source, SOURCE)
    if not script then return "syntax", problem end
    if keys_count < 0 then return "done" end
    local keys, args = {}, {}
    for at = 1, select("#", ...) do
        if at <= keys_count then
            keys[at] = (select(at, ...))
        else
            args[at - keys_count] = (select(at, ...))
        end
    end
    globals.KEYS, globals.ARGV = keys, args
    setfenv(script, environment)
    local out = {}
    ends_at = clock() + seconds
    host("limit")
    sethook(on_count, "", hook_count)
    local is_done, why = xpcall(function() flatten(out, script(), 1) end, on_error)
    sethook()
    host("unlimit")
    if is_done then return "done", out end
    if type(why) ~= "table" then return "memory" end
    local text, line = rawget(why, "err"), rawget(why, "line")
    return "failed", type(text) == "string" and text or "ERR unknown error", type(line) == "number" and line or 0
end
